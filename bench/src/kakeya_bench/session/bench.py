"""What `kakeya bench session` runs once its flags are known: what measures, and what says what was found."""

from kakeya_bench.session.page import files, summary
from kakeya_bench.session.run import JSON_NAME, run

__all__ = ["JSON_NAME", "files", "run", "summary"]
