"""`kakeya bench session`."""

from functools import partial

from kakeya_bench.conversation import command
from kakeya_bench.session.settings import SUMMARY, SessionSettings

__all__ = ["SUMMARY", "main"]

main = partial(command.main, SessionSettings, "kakeya_bench.session")
