"""A request that generates, once it is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kakeya import AsyncClient
from kakeya_http_shim.answers.writer import Writer
from kakeya_http_shim.requests.generation_fields import GenerationFields
from kakeya_http_shim.routes.wanted_session import WantedSession

Body = TypeVar("Body", bound=GenerationFields)


@dataclass(frozen=True)
class Caller:
    """Who asks, and how.

    Attributes:
        is_short: the request is; a long one is worked on off the event loop.
    """

    client: AsyncClient
    api_key: str
    request_id: str
    wanted: WantedSession
    is_short: bool


@dataclass(frozen=True)
class Asked(Generic[Body]):
    """A request that was read.

    Attributes:
        writer: of its answer.
        is_short: its body is.
        headers: of its answer, beside those of all.
    """

    body: Body
    writer: Writer
    is_short: bool
    headers: Mapping[str, str] = field(default_factory=dict)
