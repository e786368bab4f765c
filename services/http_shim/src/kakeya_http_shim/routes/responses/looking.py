"""Looks at responses: one whose server was lost, and that nobody has gone on with, is settled."""

from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from kakeya import AsyncClient, KakeyaError, SessionNotFound, SessionState
from kakeya_http_shim.problems import SERVER, ApiError, from_kakeya
from kakeya_http_shim.responses_api.kept.kept_response import KeptResponse
from kakeya_http_shim.responses_api.kept.latest import LatestResponses
from kakeya_http_shim.responses_api.told_stream import Run, Told
from kakeya_http_shim.routes.responses.running import Running
from kakeya_http_shim.routes.responses.stored_response import IN_PROGRESS, StoredResponse, fetched

_log = structlog.get_logger()

_LEAST_SECONDS: Final = 1.0
"""Between the last token of an answer and what its server writes of it."""
_ENDED: Final = (SessionState.FAILED, SessionState.LOST)


@dataclass(frozen=True)
class Looking:
    """Looks at responses.

    Attributes:
        linger_seconds: for which an answer without a reader runs on.
        ttl_seconds: for which a response is kept.
        latest: that this server has stored.
    """

    running: Running
    linger_seconds: float
    ttl_seconds: int
    latest: LatestResponses = field(default_factory=LatestResponses, init=False)

    async def look(self, client: AsyncClient, response_id: str) -> KeptResponse:
        """As it is. Raises ApiError, as `fetched`."""
        await self.running.settle(response_id)
        kept, version = await fetched(client, response_id)
        if kept.status != IN_PROGRESS or kept.run is None or self.running.runs(response_id):
            return kept
        if not await self._is_left(client, kept.run):
            return kept
        return await self.settle(client, kept, kept.run, version)

    async def settle(self, client: AsyncClient, kept: KeptResponse, run: Run, version: int) -> KeptResponse:
        """It has failed, unless another server has changed it in between: as it is then.

        A server that answers it after all writes down what has become of it.
        """
        response_id = str(kept.response["id"])
        _log.info("a response is settled whose server was lost", session_id=run.session_id)
        stored = StoredResponse(client, response_id, run.by, self.ttl_seconds, version)
        await stored.write_unchanged(lost(kept))
        return (await fetched(client, response_id))[0]

    async def _is_left(self, client: AsyncClient, run: Run) -> bool:
        """Whether nobody gives the answer any more: its session has ended, or has been idle for long."""
        try:
            info = await client.session(run.session_id).info()
        except SessionNotFound:
            return True
        except KakeyaError as error:
            raise from_kakeya(error) from error
        return info.state in _ENDED or info.idle_seconds > max(self.linger_seconds, _LEAST_SECONDS)


def lost(kept: KeptResponse) -> KeptResponse:
    """One whose server was lost, as its client is told."""
    message = "the server that gave the answer was lost, and nobody has gone on with it in time"
    error = ApiError(503, message, type=SERVER, code="server_lost").body()["error"]
    said = {name: error[name] for name in ("code", "message")}
    return replace(kept, response={**kept.response, "status": "failed", "error": said}, told=Told((), error=error))
