"""A request that is understood."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from kakeya import AsyncClient
from kakeya_http_shim.answers.writer import Writer
from kakeya_http_shim.choices.ask import Ask

Operation = Literal["chat", "text_completion"]
"""As OpenTelemetry's conventions for generative AI name them."""


@dataclass(frozen=True)
class Question:
    """A request that is understood.

    Attributes:
        asks: its answers, prompt by prompt.
        client: of the caller's key.
        includes_usage: a stream ends with `usage`.
        tells_usage: each event of it has that of its answer so far.
        created: when it came, Unix time in seconds.
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
