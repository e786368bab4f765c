"""Records and messages say the same under the same names: what both have is copied, and nothing else."""

from collections.abc import Iterable
from typing import Any


def same_named(source: object, names: Iterable[str]) -> dict[str, Any]:
    """The fields of a record or message that have one of these names, by name."""
    return {name: getattr(source, name) for name in names if hasattr(source, name)}
