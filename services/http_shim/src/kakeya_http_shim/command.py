"""`kakeya http`."""

import sys

SUMMARY = "serve OpenAI's HTTP API in front of a router"
_LAUNCHER_FLAGS = ("--block-size", "--num-diffusion-steps")  # of the earlier generation's launcher


def main(argv: list[str]) -> int:
    """Runs until SIGINT or SIGTERM; returns the exit status."""
    from kakeya_http_shim.program import serve
    from kakeya_http_shim.settings import HttpSettings
    from kakeya_shared.process import service_process

    settings = HttpSettings.parse(without_launcher_flags(argv))
    return service_process.run("http", settings.log_level, lambda stop: serve(settings, stop), settings.log_format)


def without_launcher_flags(argv: list[str]) -> list[str]:
    """The arguments without the earlier launcher's flags and their values; warns once, with all that were given."""
    kept, found = [], []
    arguments = iter(argv)
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if name not in _LAUNCHER_FLAGS:
            kept.append(argument)
            continue
        found.append(name)
        if not equals:
            next(arguments, None)
    if found:
        names = ", ".join(dict.fromkeys(found))
        print(f"kakeya http: warning: {names}: of the earlier launcher, without effect here", file=sys.stderr)
    return kept
