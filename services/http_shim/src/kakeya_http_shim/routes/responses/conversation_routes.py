"""The routes of conversations; all raise ApiError."""

import asyncio
import time
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.requests.fields import RequestModel
from kakeya_http_shim.responses_api.conversation_bodies import (
    AddItems,
    ConversationObject,
    CreateConversation,
    DeletedConversation,
    UpdateConversation,
)
from kakeya_http_shim.responses_api.kept.kept_conversation import KeptConversation
from kakeya_http_shim.responses_api.kept.kept_response import items_to_keep
from kakeya_http_shim.routes import bodies
from kakeya_http_shim.routes.desk import Desk
from kakeya_http_shim.routes.responses.conversation_store import Conversations, check_new, item_of
from kakeya_http_shim.routes.responses.item_pages import ItemList, Page

BodyT = TypeVar("BodyT", bound=RequestModel)


class ConversationRoutes:
    """/v1/conversations, and what is below it."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def create(self, request: Request) -> Response:
        """With the items that it begins with."""
        body = await _read(CreateConversation, request)
        if self._desk.settings.stored_responses == "off":
            raise ApiError(400, "this server stores nothing (--stored-responses off)", code="not_stored")
        items = await asyncio.to_thread(items_to_keep, body.items or ())
        check_new(set(), items, "items")
        conversation = KeptConversation(int(time.time()), body.metadata or {}, items)
        return _told(await self._all(request).begin(conversation), conversation)

    async def conversation(self, request: Request) -> Response:
        """Without its items."""
        return _told(_id(request), await self._all(request).fetch(_id(request)))

    async def update(self, request: Request) -> Response:
        """Its metadata."""
        body = await _read(UpdateConversation, request)
        return _told(_id(request), await self._all(request).note(_id(request), body.metadata or {}))

    async def delete(self, request: Request) -> Response:
        """Forgets it. The sessions that it went on in, and the responses in it, stay as long as they would have."""
        await self._all(request).forget(_id(request))
        return _json(DeletedConversation(id=_id(request)))

    async def items(self, request: Request) -> Response:
        """A page of them."""
        page = Page(request)
        return _json(page.of((await self._all(request).fetch(_id(request))).items))

    async def add(self, request: Request) -> Response:
        """Items behind those that are there: these, with their ids."""
        body = await _read(AddItems, request)
        items = await asyncio.to_thread(items_to_keep, body.items)
        await self._all(request).add(_id(request), items, field="items")
        return _json(ItemList.of(items))

    async def item(self, request: Request) -> Response:
        """One of them."""
        kept = await self._all(request).fetch(_id(request))
        return JSONResponse(item_of(kept, _item_id(request)))

    async def delete_item(self, request: Request) -> Response:
        """Forgets one of them: the conversation without it."""
        return _told(_id(request), await self._all(request).drop(_id(request), _item_id(request)))

    def _all(self, request: Request) -> Conversations:
        client = self._desk.client.with_api_key(request.state.api_key)
        return Conversations(client, self._desk.settings.response_ttl_seconds)


async def _read(kind: type[BodyT], request: Request) -> BodyT:
    """Raises ApiError, ClientDisconnect."""
    read = await bodies.read(kind.read, request.scope, request.receive)
    if read is None:
        raise ClientDisconnect
    return read[0]


def _told(conversation_id: str, kept: KeptConversation) -> Response:
    return _json(ConversationObject(id=conversation_id, created_at=kept.created_at, metadata=dict(kept.metadata)))


def _json(told: BaseModel) -> Response:
    return JSONResponse(told.model_dump())


def _id(request: Request) -> str:
    return str(request.path_params["id"])


def _item_id(request: Request) -> Any:
    return str(request.path_params["item_id"])
