"""What `kakeya bench compare` runs once its flags are known: what measures, and what says what was found."""

from kakeya_bench.compare.page import files, summary
from kakeya_bench.compare.run import JSON_NAME, run

__all__ = ["JSON_NAME", "files", "run", "summary"]
