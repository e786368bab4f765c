"""`kakeya bench`: runs a bench of an installed part."""

from kakeya.cli import commands
from kakeya.cli.menu import Menu

SUMMARY = "measure a model or a runtime, and judge it by floors"
GROUP = "kakeya.benches"


def main(argv: list[str]) -> int:
    return Menu(
        prog="kakeya bench",
        kind="bench",
        kinds="benches",
        about="Benches measure, write what they found as JSON and a card, and exit with 1 where a floor is not met.",
        closing="`kakeya bench BENCH --help` describes a bench. The worker's: pip install 'kakeya-worker[torch,bench]'",
        entries=commands.find(GROUP),
    ).run(argv)
