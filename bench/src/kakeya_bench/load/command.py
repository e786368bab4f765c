"""`kakeya bench load`."""

from functools import partial

from kakeya_bench.conversation import command
from kakeya_bench.load.settings import SUMMARY, LoadSettings

__all__ = ["SUMMARY", "main"]

main = partial(command.main, LoadSettings, "kakeya_bench.load")
