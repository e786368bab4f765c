"""One request from its admission to its answer, watched for what can cut it short."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from opentelemetry import trace
from starlette.types import Receive, Scope, Send

from kakeya import KakeyaError
from kakeya_http_shim.answers.reply import Reply
from kakeya_http_shim.problems import ApiError, from_kakeya, internal, unavailable
from kakeya_http_shim.routes.admission import Admission

_log = structlog.get_logger()


@dataclass(frozen=True)
class House:
    """What all exchanges have in common.

    Attributes:
        cut_short: set when the shutdown waits no longer for answers.
    """

    admission: Admission
    cut_short: asyncio.Event


class Exchange:
    """An ASGI answer that works while it watches for a client that leaves and for the end of the server.

    Args:
        work: gives the answer; it is cancelled where nobody waits for that any more.
        fields: which field of the request a field of the runtime's comes from.
    """

    def __init__(
        self, house: House, work: Callable[[Reply], Awaitable[None]], fields: Mapping[str, str] | None = None
    ) -> None:
        self._house = house
        self._work = work
        self._fields = fields or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = Reply(scope, send)
        work = asyncio.create_task(self._answer(reply))
        gone = asyncio.ensure_future(receive())  # all that can come after the body is that the client leaves
        cut_short = asyncio.create_task(self._house.cut_short.wait())
        tasks: set[asyncio.Future[Any]] = {work, gone, cut_short}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_cut_short = cut_short.done() and not gone.done() and not work.done()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if is_cut_short:
            await reply.failure(unavailable("this server is shutting down", "shutting_down"))

    async def _answer(self, reply: Reply) -> None:
        try:
            async with self._house.admission.place():
                await self._work(reply)
        except ApiError as error:
            await reply.failure(error)
        except KakeyaError as error:
            await reply.failure(from_kakeya(error, self._fields))
        except Exception:
            _log.exception("a request failed unforeseen")
            await reply.failure(internal(_trace_id()))


def _trace_id() -> str:
    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else ""
