"""The routes of responses that are kept: looked at, listed, cancelled, deleted."""

from typing import Literal

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from kakeya import AsyncClient
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.responses_api.kept.kept_items import KeptItems
from kakeya_http_shim.responses_api.kept.kept_response import KeptResponse
from kakeya_http_shim.routes.desk import Desk
from kakeya_http_shim.routes.responses.item_pages import Page
from kakeya_http_shim.routes.responses.looking import Looking
from kakeya_http_shim.routes.responses.past import PREVIOUS_NOT_FOUND, Past
from kakeya_http_shim.routes.responses.stored_response import deleted, fetched
from kakeya_http_shim.routes.responses.streams import Streams, starting_after


class DeletedResponse(BaseModel):
    """A response is forgotten."""

    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


class KeptRoutes:
    """GET, DELETE, the items and the cancelling of one response; all raise ApiError."""

    def __init__(self, desk: Desk, looking: Looking, streams: Streams) -> None:
        self._desk = desk
        self._looking = looking
        self._running = looking.running
        self._streams = streams

    async def response(self, request: Request) -> ASGIApp:
        """As it was when it was stored last, or its stream."""
        client, streams = self._client(request), _flag(request, "stream")
        if _flag(request, "include_obfuscation"):
            message = "include_obfuscation: not supported: nothing is obfuscated"
            raise ApiError(400, message, param="include_obfuscation", code="unsupported_parameter")
        after = starting_after(request)
        if streams:
            return await self._streams.stream(client, _id(request), request.scope, after)
        return JSONResponse((await self._looking.look(client, _id(request))).response)

    async def delete(self, request: Request) -> Response:
        """Forgets it with its items; its session goes on, and so does its answer if that is not at its end."""
        response_id = _id(request)
        await self._running.settle(response_id)
        await deleted(self._client(request), response_id)
        self._looking.latest.deleted(response_id)
        return JSONResponse(DeletedResponse(id=response_id).model_dump())

    async def items(self, request: Request) -> Response:
        """Those before its answer; of one in a conversation those that its request has brought."""
        page, client = Page(request), self._client(request)
        kept, _ = await fetched(client, _id(request))
        return JSONResponse(page.of(await self._items(client, kept)).model_dump())

    async def _items(self, client: AsyncClient, kept: KeptResponse) -> KeptItems:
        """Of one whose server was lost, those that nobody has deleted with the response before."""
        if kept.after is None:
            return kept.items
        try:
            before = await Past(client, self._looking).before_items(kept)
        except ApiError as error:
            if error.code != PREVIOUS_NOT_FOUND:
                raise
            return kept.items
        return before.kept.followed_by(kept.items)

    async def cancel(self, request: Request) -> Response:
        """Of one that is being answered by this server."""
        response_id, client = _id(request), self._client(request)
        await self._running.settle(response_id)
        await fetched(client, response_id)  # to others than its tenant it does not exist
        await self._running.cancel(response_id)
        return JSONResponse((await fetched(client, response_id))[0].response)

    def _client(self, request: Request) -> AsyncClient:
        return self._desk.client.with_api_key(request.state.api_key)


def _flag(request: Request, name: str) -> bool:
    """Of the query. Raises ApiError: it is none."""
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise ApiError(400, f"{name}: must be true or false", param=name, code="invalid_value")
    return text == "true"


def _id(request: Request) -> str:
    return str(request.path_params["id"])
