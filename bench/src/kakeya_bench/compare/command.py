"""`kakeya bench compare`."""

from kakeya_bench.compare.settings import SUMMARY, CompareSettings
from kakeya_bench.conversation import command

__all__ = ["SUMMARY", "main"]


def main(argv: list[str]) -> int:
    """Runs the bench and returns its exit status."""

    def load() -> command.Bench[CompareSettings]:
        from kakeya_bench.compare import bench

        return bench

    return command.main(argv, CompareSettings, load)
