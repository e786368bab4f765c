"""A request that generates, once it is read."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Generic, Self, TypeVar

from starlette.types import Scope

from kakeya import AsyncClient
from kakeya_http_shim.answers.writer import Writer
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.requests.generation_fields import GenerationFields
from kakeya_http_shim.routes.wanted_session import WantedSession

Body = TypeVar("Body", bound=GenerationFields)


async def _nothing() -> None:
    """All is known."""


@dataclass(frozen=True)
class Caller:
    """Who asks, and how.

    Attributes:
        is_short: the request is; a long one is worked on off the event loop.
        park_after_seconds: as of `Chat`.
        confirm: is awaited before anything is done in the runtime for the request; raises where it is not as it seems.
    """

    client: AsyncClient
    api_key: str
    request_id: str
    wanted: WantedSession
    is_short: bool
    park_after_seconds: int | None = None
    confirm: Callable[[], Awaitable[None]] = _nothing

    @property
    def owner(self) -> bytes:
        """Of its sessions: equal for equal keys, and not the key."""
        return blake2b(self.api_key.encode(), digest_size=16).digest()

    @classmethod
    def of(cls, scope: Scope, client: AsyncClient, asked: "Asked[Any]") -> Self:
        """Of a request that passed the middleware.

        Args:
            client: without a key.

        Raises:
            ApiError
        """
        key, wanted = scope["state"]["api_key"], WantedSession.of(scope)
        request_id = scope["state"]["request_id"]
        return cls(client.with_api_key(key), key, request_id, wanted, asked.is_short, asked.park_after_seconds)


@dataclass(frozen=True)
class Asked(Generic[Body]):
    """A request that was read.

    Attributes:
        writer: of its answer.
        is_short: its body is.
        headers: of its answer, beside those of all.
        park_after_seconds: as of `Chat`.
        last_events: as of `Reply`.
    """

    body: Body
    writer: Writer
    is_short: bool
    headers: Mapping[str, str] = field(default_factory=dict)
    park_after_seconds: int | None = None
    last_events: Callable[[ApiError], bytes] | None = None
