"""`kakeya bench load`."""

from kakeya_bench.conversation import command
from kakeya_bench.load.settings import SUMMARY, LoadSettings

__all__ = ["SUMMARY", "main"]


def main(argv: list[str]) -> int:
    """Runs the bench and returns its exit status."""

    def load() -> command.Bench[LoadSettings]:
        from kakeya_bench.load import bench

        return bench

    return command.main(argv, LoadSettings, load)
