"""What is said to a server of Redis, and which one that is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

Command = Sequence[Any]
"""Its name and what it is given."""


class Generation:
    """See GENERATION."""


GENERATION: Final = Generation()
"""In a command: the generation of the very server that gets it."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where a connection goes to.

    Attributes:
        url: of the one server.
        generation: of the primary, as those say who choose it: each that takes over has a greater one than all before;
            0: nobody says it.
    """

    url: str
    generation: int = 0
