"""Flags of the earlier generation's launcher: accepted, without effect, with one line that says so."""

import sys

_FLAGS = ("--block-size", "--num-diffusion-steps")


def without_launcher_flags(argv: list[str]) -> list[str]:
    """The arguments without those flags and their values; warns on standard error once, with all that were given."""
    kept, found = [], []
    arguments = iter(argv)
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if name not in _FLAGS:
            kept.append(argument)
            continue
        found.append(name)
        if not equals:
            next(arguments, None)
    if found:
        names = ", ".join(dict.fromkeys(found))
        print(f"kakeya http: warning: {names}: of the earlier launcher, without effect here", file=sys.stderr)
    return kept
