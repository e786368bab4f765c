"""A request that is understood."""

import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from kakeya import AsyncClient
from kakeya_http_shim.answers.writer import Writer
from kakeya_http_shim.choices.ask import Ask
from kakeya_http_shim.choices.opened import Opened
from kakeya_http_shim.problems import ApiError

Operation = Literal["chat", "text_completion"]
"""As OpenTelemetry's conventions for generative AI name them."""


class Keep(Protocol):
    """Keeps an answer, so that it can be asked for later."""

    async def answered(self, answering: Coroutine[Any, Any, None]) -> None:
        """Has it answered. Raises as that does, and ApiError where it is ended from elsewhere."""
        ...

    def begin(self, opened: Opened) -> None:
        """Its session is there, and its client will be told of it next."""
        ...

    async def has_begun(self) -> None:
        """That is kept, if it can be."""
        ...

    async def end(self, told: bytes) -> bytes:
        """What its client is told in the end, once it is kept."""
        ...

    def give_up(self, error: ApiError | None) -> None:
        """It has failed, or (None) its client has left."""
        ...


@dataclass(frozen=True)
class Question:
    """A request that is understood.

    Attributes:
        asks: its answers, prompt by prompt.
        client: of the caller's key.
        includes_usage: a stream ends with `usage`.
        tells_usage: each event of it has that of its answer so far.
        created: when it came, Unix time in seconds.
        keep: None: nobody asks for it later.
    """

    id: str
    operation: Operation
    asks: Sequence[Ask]
    client: AsyncClient
    writer: Writer
    streams: bool
    includes_usage: bool
    tells_usage: bool = False
    created: int = field(default_factory=lambda: int(time.time()))
    keep: Keep | None = None
