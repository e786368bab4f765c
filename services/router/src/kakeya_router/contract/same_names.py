"""Records and messages say the same under the same names: what both have is copied, and nothing else."""

from collections.abc import Iterable
from typing import Any


def same_named(source: object, names: Iterable[str]) -> dict[str, Any]:
    """Of a record or a message, by name, what another one has too, whose fields have these names."""
    return {name: getattr(source, name) for name in names if hasattr(source, name)}
