"""`kakeya bench compare`."""

from functools import partial

from kakeya_bench.compare.settings import SUMMARY, CompareSettings
from kakeya_bench.conversation import command

__all__ = ["SUMMARY", "main"]

main = partial(command.main, CompareSettings, "kakeya_bench.compare")
