"""What the calls of objects answer."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FetchedObject:
    """An object that a runtime keeps.

    Attributes:
        version: 1 of an object that is new, one more with each change; 0: the runtime is of an older version, and knows
            none.
    """

    data: bytes
    version: int
