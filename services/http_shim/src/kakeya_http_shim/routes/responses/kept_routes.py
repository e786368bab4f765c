"""The routes of responses that are kept: looked at, listed, cancelled, deleted."""

from typing import Literal

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kakeya import AsyncClient
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.routes.desk import Desk
from kakeya_http_shim.routes.responses.item_pages import Page
from kakeya_http_shim.routes.responses.keeping import deleted, fetched
from kakeya_http_shim.routes.responses.running import Running


class DeletedResponse(BaseModel):
    """A response is forgotten."""

    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


class KeptRoutes:
    """GET, DELETE, the items and the cancelling of one response; all raise ApiError."""

    def __init__(self, desk: Desk, running: Running) -> None:
        self._desk = desk
        self._running = running

    async def response(self, request: Request) -> Response:
        """As it was when it was stored last."""
        if request.query_params.get("stream") == "true":
            message = "stream: not supported: not served yet"
            raise ApiError(400, message, param="stream", code="unsupported_parameter")
        kept = await fetched(self._client(request), _id(request))
        return JSONResponse(kept.response)

    async def delete(self, request: Request) -> Response:
        """Forgets it with its items; its session goes on, and so does its answer if that is not at its end."""
        response_id, client = _id(request), self._client(request)
        await self._running.settle(response_id)
        if self._running.runs(response_id):
            await fetched(client, response_id)  # to others than its tenant it does not exist
            self._running.forget(response_id)
            await self._running.settle(response_id)  # its end may have begun to be stored
        await deleted(client, response_id)
        return JSONResponse(DeletedResponse(id=response_id).model_dump())

    async def items(self, request: Request) -> Response:
        """Those before its answer; of one in a conversation those that its request has brought."""
        page = Page(request)
        kept = await fetched(self._client(request), _id(request))
        return JSONResponse(page.of(kept.items).model_dump())

    async def cancel(self, request: Request) -> Response:
        """Of one that is being answered by this server."""
        response_id, client = _id(request), self._client(request)
        await self._running.settle(response_id)
        await fetched(client, response_id)  # to others than its tenant it does not exist
        await self._running.cancel(response_id)
        return JSONResponse((await fetched(client, response_id)).response)

    def _client(self, request: Request) -> AsyncClient:
        return self._desk.client.with_api_key(request.state.api_key)


def _id(request: Request) -> str:
    return str(request.path_params["id"])
