"""What is kept of a response's stream: how another server goes on with it, and how it is told again."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from kakeya_http_shim.choices.opened import Opened
from kakeya_http_shim.conversations.said import Said
from kakeya_http_shim.models.prompt import Thinking


class Numbers(Iterator[int]):
    """The sequence numbers of a stream's events.

    Attributes:
        next: of the event that comes next.
    """

    def __init__(self) -> None:
        self.next = 0

    def __next__(self) -> int:
        self.next += 1
        return self.next - 1


@dataclass(frozen=True, slots=True)
class Run:
    """An answer that is being given.

    Attributes:
        by: names the server that gives it; another one that goes on with it writes down its own name.
        request: as its client sent it, without items.
        session_id: that it is in.
        resumption: of its generation.
        begins: as of `Opened`, like what follows.
    """

    by: str
    request: Mapping[str, Any]
    session_id: str
    resumption: bytes
    begins: Thinking
    fingerprint: str
    num_prompt_tokens: int
    num_kept: int
    said: Said | None

    def packed(self) -> dict[str, Any]:
        """For `packing`."""
        return asdict(self) | {"resumption": base64.b64encode(self.resumption).decode()}

    @classmethod
    def unpacked(cls, told: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError, ValueError: it is none."""
        said = None if told["said"] is None else Said(**told["said"])
        return cls(**{**told, "resumption": base64.b64decode(told["resumption"]), "said": said})

    @property
    def opened(self) -> Opened:
        return Opened(self.fingerprint, self.num_prompt_tokens, self.num_kept, self.said, self.begins)


@dataclass(frozen=True, slots=True)
class Told:
    """How a stream was told.

    Attributes:
        pieces: of each item of the answer, how many letters each of its pieces had.
        open_item: that did not come to its end, and is none of the answer's; its pieces are the last ones.
        error: that ended the stream, as its event says it; None: none did.
        error_number: of that event; None of a stream whose server was lost: nobody knows what was told.
    """

    pieces: Sequence[Sequence[int]]
    open_item: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    error_number: int | None = None
