"""`kakeya bench session`."""

from kakeya_bench.conversation import command
from kakeya_bench.session.settings import SUMMARY, SessionSettings

__all__ = ["SUMMARY", "main"]


def main(argv: list[str]) -> int:
    """Runs the bench and returns its exit status."""

    def load() -> command.Bench[SessionSettings]:
        from kakeya_bench.session import bench

        return bench

    return command.main(argv, SessionSettings, load)
