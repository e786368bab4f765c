"""Runs a proof that takes minutes: `python -m tests.soak NAME [FLAGS]`, where NAME is one of `PROOFS`."""

import sys
from importlib import import_module

from kakeya_shared.settings.service import EXIT_USAGE
from tests.soak.proof import Proof

PROOFS = (
    "chaos",
    "crowd-http",
    "cuts",
    "fuzz",
    "fuzz-gguf",
    "fuzz-http",
    "histories-http",
    "leavers-http",
    "nodes",
    "overload",
    "overload-http",
    "responses-http",
)


def proof(name: str) -> type[Proof]:
    """From its own room, e.g. `FuzzHttp` from `fuzz_http`: what all of them import takes seconds."""
    room = import_module(f"tests.soak.{name.replace('-', '_')}.proof")
    found: type[Proof] = getattr(room, name.title().replace("-", ""))
    return found


def main(argv: list[str]) -> int:
    if not argv or argv[0] not in PROOFS:
        print(f"usage: python -m tests.soak {{{','.join(PROOFS)}}} [--help]", file=sys.stderr)
        return EXIT_USAGE
    return proof(argv[0]).parse(argv[1:]).main()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
