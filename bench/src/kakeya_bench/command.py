"""`kakeya bench`: runs a bench."""

from kakeya.cli.commands import commands
from kakeya.cli.commands.menu import Menu

SUMMARY = "measure a model or a runtime, and judge it by floors"
GROUP = "kakeya.benches"


def main(argv: list[str]) -> int:
    return Menu(
        prog="kakeya bench",
        kind="bench",
        kinds="benches",
        about="Benches measure, write down what they found, and exit with 1 where a floor or gate is not met.",
        closing="`kakeya bench BENCH --help` describes a bench.",
        entries=commands.find(GROUP),
    ).run(argv)
