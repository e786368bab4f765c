"""The routes of responses that are kept: looked at, listed, cancelled, deleted."""

from typing import Any, Final, Literal

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kakeya import AsyncClient
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.routes.desk import Desk
from kakeya_http_shim.routes.responses.keeping import deleted, fetched
from kakeya_http_shim.routes.responses.running import Running

_DEFAULT_ITEMS, MAX_ITEMS = 20, 100
_ORDERS: Final = ("asc", "desc")


class DeletedResponse(BaseModel):
    """A response is forgotten."""

    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


class ItemList(BaseModel):
    """Items of the conversation before an answer, a page of them."""

    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    first_id: str | None = Field(description="null of an empty page")
    last_id: str | None
    has_more: bool


class KeptRoutes:
    """GET, DELETE, the items and the cancelling of one response; all raise ApiError."""

    def __init__(self, desk: Desk, running: Running) -> None:
        self._desk = desk
        self._running = running

    async def response(self, request: Request) -> Response:
        """As it was when it was stored last."""
        if request.query_params.get("stream") == "true":
            raise _invalid("stream", "not supported: not served yet", "unsupported_parameter")
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
        """Those before its answer."""
        limit, order, after = _limit(request), _order(request), request.query_params.get("after")
        kept = await fetched(self._client(request), _id(request))
        found = [*kept.items] if order == "asc" else [*reversed(kept.items)]
        if after is not None:
            ids = [item["id"] for item in found]
            if after not in ids:
                raise _invalid("after", "names no item of this response")
            found = found[ids.index(after) + 1 :]
        page = found[:limit]
        first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
        listed = ItemList(data=page, first_id=first, last_id=last, has_more=len(found) > limit)
        return JSONResponse(listed.model_dump())

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


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", str(_DEFAULT_ITEMS))
    if not (text.isascii() and text.isdecimal() and len(text) < 4 and 1 <= int(text) <= MAX_ITEMS):
        raise _invalid("limit", f"must be 1 to {MAX_ITEMS}")
    return int(text)


def _order(request: Request) -> str:
    order = request.query_params.get("order", "desc")
    if order not in _ORDERS:
        raise _invalid("order", f"must be one of {', '.join(_ORDERS)}")
    return order


def _invalid(name: str, why: str, code: str = "invalid_value") -> ApiError:
    return ApiError(400, f"{name}: {why}", param=name, code=code)
