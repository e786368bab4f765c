"""POST /v1/responses/compact: a conversation as one item, without what its session has forgotten."""

import asyncio
import secrets
import time
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from kakeya import AsyncClient
from kakeya_http_shim.answers.usage import Sight
from kakeya_http_shim.responses_api.as_chat import chat_request
from kakeya_http_shim.responses_api.compact_request import CompactedResponse, CompactRequest, Forgotten
from kakeya_http_shim.responses_api.kept.kept_response import Conversation
from kakeya_http_shim.responses_api.response_object import (
    InputTokensDetails,
    OutputTokensDetails,
    ResponseUsage,
)
from kakeya_http_shim.responses_api.responses_request import ResponsesRequest
from kakeya_http_shim.routes import bodies
from kakeya_http_shim.routes.responses.compacting import Made
from kakeya_http_shim.routes.responses.response_route import ResponsesRoute

_KEY_BYTES: Final = 16


class CompactRoute(ResponsesRoute):
    """Compacts conversations; they stay as they are."""

    async def compact(self, request: Request) -> Response:
        """Raises ApiError."""
        read = await bodies.read(CompactRequest.read, request.scope, request.receive)
        if read is None:
            raise ClientDisconnect
        api_key = request.state.api_key
        client = self._desk.client.with_api_key(api_key)
        made = await self._made(read[0].as_response_request(), client, api_key)
        item = await self._sealing.compaction(made.compaction, client, api_key)
        answer = CompactedResponse(
            object="response.compaction",
            id=f"resp_{secrets.token_hex(_KEY_BYTES)}",
            created_at=int(time.time()),
            output=[item],
            usage=_usage(made.forgotten),
            kakeya=made.forgotten,
        )
        return JSONResponse(answer.model_dump(exclude_unset=True))

    async def _made(self, given: ResponsesRequest, client: AsyncClient, api_key: str) -> Made:
        before = (await self._past(client).before(given)).said
        if given.input is None:
            given, before = given.model_copy(update={"input": before.items}), Conversation()
        unsealed = await self._sealing.unsealed(given, before.items, client, api_key)
        body = await asyncio.to_thread(chat_request, given, before.stretches, unsealed)
        return await (await self._compacting(given, body, client, api_key)).made()


def _usage(forgotten: Forgotten) -> ResponseUsage:
    num_tokens = forgotten.history
    return ResponseUsage(
        input_tokens=num_tokens,
        input_tokens_details=InputTokensDetails(cached_tokens=num_tokens if forgotten.session else 0),
        output_tokens=0,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
        total_tokens=num_tokens,
        kakeya=Sight.model_validate(forgotten.model_dump(exclude={"session"})),
    )
