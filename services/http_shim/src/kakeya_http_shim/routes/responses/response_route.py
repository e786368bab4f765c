"""POST /v1/responses: each body is worked on as the chat that it is, behind the response that it goes on from."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, cast

from starlette.types import Receive, Scope

from kakeya import AsyncClient
from kakeya_http_shim.answers.question import Question
from kakeya_http_shim.choices.held import Held
from kakeya_http_shim.models.served_models import TextModel
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.responses_api.as_chat import chat_request, own_items
from kakeya_http_shim.responses_api.kept_response import Behind, Conversation, items_to_keep
from kakeya_http_shim.responses_api.packing import Unreadable
from kakeya_http_shim.responses_api.responses_request import ResponsesRequest
from kakeya_http_shim.responses_api.responses_writer import ResponsesWriter
from kakeya_http_shim.routes import bodies
from kakeya_http_shim.routes.asked import Asked, Caller
from kakeya_http_shim.routes.chat_prompts import fitting
from kakeya_http_shim.routes.desk import Desk
from kakeya_http_shim.routes.generation_routes import ChatRoute
from kakeya_http_shim.routes.responses.conversation_store import Conversations, check_new
from kakeya_http_shim.routes.responses.keeping import NOT_FOUND, Joined, Keeping, fetched
from kakeya_http_shim.routes.responses.running import Running

_FORM = "text.format"
_PREVIOUS, _CONVERSATION = "previous_response_id", "conversation"
_TO_GO_ON_FROM = ("completed", "incomplete")
_MAX_SHORT_ITEMS = 8
"""Behind more of them even a short request is a long conversation, and is worked on off the event loop."""


@dataclass(frozen=True, kw_only=True)
class AskedResponse(Asked[ChatRequest]):
    """A request for a response that was read.

    Attributes:
        given: as its client sent it.
        written: by whom.
    """

    given: ResponsesRequest
    written: ResponsesWriter


@dataclass(frozen=True)
class _Before:
    """What a request goes on from.

    Attributes:
        joined: the conversation that it is in, if it is in one.
    """

    said: Conversation = field(default_factory=Conversation)
    joined: Joined | None = None


class ResponsesRoute(ChatRoute):
    """POST /v1/responses."""

    fields: ClassVar[Mapping[str, str]] = {
        **ChatRoute.fields,
        "grammar.json_schema": _FORM,
        "max_tokens": "max_output_tokens",
    }
    schemas: ClassVar[str] = "tools[{}].parameters"

    def __init__(self, desk: Desk, running: Running) -> None:
        super().__init__(desk)
        self._running = running

    async def _read(self, scope: Scope, receive: Receive) -> Asked[ChatRequest] | None:
        read = await bodies.read(self._understood, scope, receive)
        if read is None:
            return None
        (given, body, writer), is_short = read
        return AskedResponse(body, writer, is_short, last_events=writer.failure, given=given, written=writer)

    def _understood(self, data: bytes) -> tuple[ResponsesRequest, ChatRequest, ResponsesWriter]:
        given, settings = ResponsesRequest.read(data), self._desk.settings
        writer = ResponsesWriter(given, settings.on_overflow, stores=settings.stored_responses == "on")
        return given, chat_request(given), writer

    async def _question(self, asked: Asked[ChatRequest], caller: Caller) -> Question:
        read = cast(AskedResponse, asked)  # as `_read` has made it
        before = await self._before(read.given, caller.client)
        own = await asyncio.to_thread(items_to_keep, own_items(read.given))
        if before.joined is not None:
            check_new({item["id"] for item in before.said.kept}, own, "input")
        if before.said.items:
            is_short = caller.is_short and len(before.said.items) <= _MAX_SHORT_ITEMS
            body = await asyncio.to_thread(chat_request, read.given, before.said.items)
            read, caller = replace(read, body=body), replace(caller, is_short=is_short)
        question = await super()._question(read, caller)
        if not read.written.response.store and before.joined is None:
            return question
        keeping = Keeping(
            caller.client,
            read.written,
            own if before.joined is not None else [*before.said.kept, *own],
            self._desk.answering.maker.sessions.tasks,
            self._running,
            question.id,
            self._desk.settings.response_ttl_seconds,
            before.joined,
        )
        return replace(question, keep=keeping)

    async def _before(self, given: ResponsesRequest, client: AsyncClient) -> _Before:
        """What it goes on from. Raises ApiError."""
        conversations = Conversations(client, self._desk.settings.response_ttl_seconds, _CONVERSATION)
        if given.conversation_id is not None:
            return await _joined(given.conversation_id, conversations)
        if given.previous_response_id is None:
            return _Before()
        return _Before(await _previous(given.previous_response_id, client, conversations))

    def _for_model(self, body: ChatRequest, model: TextModel) -> ChatRequest:
        return super()._for_model(fitting(body, model), model)

    def _held(self, body: ChatRequest, model: TextModel) -> Held:
        held = super()._held(body, model)
        return replace(held, form=_FORM) if held.form == "response_format" else held


async def _joined(conversation_id: str, conversations: Conversations) -> _Before:
    """All that is in a conversation. Raises ApiError."""
    kept = await conversations.fetch(conversation_id)
    try:
        said = await asyncio.to_thread(kept.said)
    except Unreadable as error:
        message = f"{_CONVERSATION}: it was stored by another version of this server"
        raise ApiError(400, message, param=_CONVERSATION, code="invalid_value") from error
    last = kept.items[-1]["id"] if kept.items else None
    return _Before(said, Joined(conversations, Behind(conversation_id, last)))


async def _previous(response_id: str, client: AsyncClient, conversations: Conversations) -> Conversation:
    """All that was said up to the end of a response. Raises ApiError."""
    try:
        kept = await fetched(client, response_id)
        if kept.status not in _TO_GO_ON_FROM:
            raise _unusable(f"is {kept.status}, and has no end to go on from")
        said = await asyncio.to_thread(kept.conversation)
    except Unreadable as error:
        raise _unusable("was stored by another version of this server") from error
    except ApiError as error:
        if error.code != NOT_FOUND:
            raise
        raise _unusable("is not there: never stored, deleted or expired", "previous_response_not_found") from error
    if kept.behind is None or kept.behind.item_id is None:
        return said
    try:
        conversation = await conversations.fetch(kept.behind.conversation_id)
        return (await asyncio.to_thread(conversation.said, kept.behind.item_id)).followed_by(said)
    except Unreadable as error:
        raise _unusable("is in a conversation that has been changed since") from error
    except ApiError as error:
        if error.status != 404:
            raise
        raise _unusable("is in a conversation that is not there any more") from error


def _unusable(why: str, code: str = "invalid_value") -> ApiError:
    return ApiError(400, f"{_PREVIOUS}: the response {why}", param=_PREVIOUS, code=code)
