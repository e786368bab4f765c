"""POST /v1/responses: each body is worked on as the chat that it is, behind the response that it goes on from."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, cast

from starlette.types import Receive, Scope, Send

from kakeya import AsyncClient, KakeyaError
from kakeya_http_shim.answers.question import Question
from kakeya_http_shim.choices.held import Held
from kakeya_http_shim.conversations.chains import Chains
from kakeya_http_shim.conversations.chat import Linking
from kakeya_http_shim.live.lasting_answer import LastingAnswer
from kakeya_http_shim.models.served_models import TextModel
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.responses_api.as_chat import chat_request, going_on, own_items
from kakeya_http_shim.responses_api.kept.kept_items import KeptItems
from kakeya_http_shim.responses_api.kept.kept_response import items_to_keep
from kakeya_http_shim.responses_api.responses_request import ResponsesRequest
from kakeya_http_shim.responses_api.responses_writer import ResponsesWriter
from kakeya_http_shim.routes import bodies, prompts
from kakeya_http_shim.routes.asked import Asked, Caller
from kakeya_http_shim.routes.chat_prompts import fitting
from kakeya_http_shim.routes.desk import Desk
from kakeya_http_shim.routes.generation_routes import ChatRoute
from kakeya_http_shim.routes.responses.compacting import Compacting, not_compactable
from kakeya_http_shim.routes.responses.conversation_store import check_new
from kakeya_http_shim.routes.responses.item_sealing import ItemSealing
from kakeya_http_shim.routes.responses.keeping import Keeping
from kakeya_http_shim.routes.responses.looking import Looking
from kakeya_http_shim.routes.responses.past import CONVERSATION, PREVIOUS, Before, Past
from kakeya_http_shim.routes.responses.stored_response import StoredResponse
from kakeya_shared.process.detached_tasks import unheard

_FORM = "text.format"
_KEPT_APART = {"input", PREVIOUS, CONVERSATION}
_CALL_STEPS = 3
"""Of the event loop: in so many a call leaves. What follows would keep it from that."""


@dataclass(frozen=True, kw_only=True)
class AskedResponse(Asked[ChatRequest]):
    """A request for a response that was read.

    Attributes:
        given: as its client sent it.
        written: by whom.
        stream: that outlives its client; None: it has none.
    """

    given: ResponsesRequest
    written: ResponsesWriter
    stream: LastingAnswer | None = None


@dataclass(frozen=True)
class _Made:
    """What a request asks for, behind what it goes on from.

    Attributes:
        own: items that it brings, as they are kept.
    """

    read: AskedResponse
    before: Before
    own: Sequence[dict[str, Any]]
    question: Question


class _NotSo(Exception):
    """What a request goes on from is not what this server knows."""


class ResponsesRoute(ChatRoute):
    """POST /v1/responses."""

    fields: ClassVar[Mapping[str, str]] = {
        **ChatRoute.fields,
        "grammar.json_schema": _FORM,
        "max_tokens": "max_output_tokens",
    }
    schemas: ClassVar[str] = "tools[{}].parameters"

    def __init__(self, desk: Desk, looking: Looking) -> None:
        super().__init__(desk)
        self.linking = Linking(make=Chains().of)
        self._looking = looking
        self._running = looking.running
        self._sealing = ItemSealing(desk.seals)
        self._tasks = desk.answering.maker.sessions.tasks

    async def answer(self, asked: Asked[ChatRequest], scope: Scope, receive: Receive, send: Send) -> None:
        """A stream that is stored outlives its client. Raises ApiError."""
        read = cast(AskedResponse, asked)  # as `_read` has made it
        if read.body.stream and read.written.response.store:
            await self.lasting(read, scope)(scope, receive, send)
        else:
            await super().answer(read, scope, receive, send)

    def lasting(self, read: AskedResponse, scope: Scope) -> LastingAnswer:
        """The stream of a response, which outlives its client. None of it is there yet."""
        stream = LastingAnswer(self._desk.settings.response_linger_seconds, 0.0)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await super(ResponsesRoute, self).answer(replace(read, stream=stream), scope, receive, send)

        async def run() -> None:
            try:
                await stream.run(app, scope, None)
            finally:
                self._running.is_told(stream)
                self._is_over(read)

        unheard(self._tasks.start(run()))
        return stream

    def _is_over(self, read: AskedResponse) -> None:
        """A stream has come to its end."""

    async def _read(self, scope: Scope, receive: Receive) -> Asked[ChatRequest] | None:
        read = await bodies.read(self._understood, scope, receive)
        if read is None:
            return None
        (given, body, writer), is_short = read
        return AskedResponse(body, writer, is_short, last_events=writer.failure, given=given, written=writer)

    def _understood(self, data: bytes) -> tuple[ResponsesRequest, ChatRequest, ResponsesWriter]:
        given, settings = ResponsesRequest.read(data), self._desk.settings
        writer = ResponsesWriter.of(given, settings.on_overflow, stores=settings.stored_responses == "on")
        return given, chat_request(given), writer

    async def _question(self, asked: Asked[ChatRequest], caller: Caller) -> Question:
        read = cast(AskedResponse, asked)
        past = self._past(caller.client)
        made = await self._likely(read, caller, past)
        if made is None:
            made = await self._behind(read, caller, await past.before(read.given))
        await self._seal(made.read, caller)
        return self._kept(made, caller)

    async def _likely(self, read: AskedResponse, caller: Caller, past: Past) -> _Made | None:
        """Behind a response as this server has stored it, made while the runtime is asked for that.

        Returns:
            None where this server does not know it, or it is not so any more.
        """
        response_id = read.given.previous_response_id
        known = past.known(response_id) if response_id else None
        if response_id is None or known is None:
            return None
        asking = asyncio.create_task(past.is_so(response_id, known))

        async def confirm() -> None:
            if not await asking:
                raise _NotSo

        try:
            for _ in range(_CALL_STEPS):
                await asyncio.sleep(0)
            made = await self._behind(read, replace(caller, confirm=confirm), known)
            await confirm()
        except (_NotSo, ApiError, KakeyaError):  # made anew it may not fail; where it does, that says why
            return None
        else:
            return made
        finally:
            asking.cancel()
            unheard(asking)

    async def _behind(self, read: AskedResponse, caller: Caller, before: Before) -> _Made:
        """What is asked for. Raises ApiError, KakeyaError, and what the caller's `confirm` raises."""
        own = await bodies.made(partial(items_to_keep, own_items(read.given)), is_short=caller.is_short)
        if before.joined is not None:
            check_new({item["id"] for item in before.said.kept}, own, "input")
        unsealed = await self._sealing.unsealed(read.given, before.said.items, caller.client, caller.api_key)
        if before.said.kept or unsealed:
            make = partial(going_on, read.body, read.given, before.said.stretches, unsealed)
            is_short = caller.is_short and not unsealed  # what is behind a compaction is made messages of anew
            read = replace(read, body=await bodies.made(make, is_short=is_short))
        return _Made(read, before, own, await super()._question(read, caller))

    def _kept(self, made: _Made, caller: Caller) -> Question:
        """One whose answer is kept, where that is wanted."""
        read, before = made.read, made.before
        if not read.written.response.store and before.joined is None:
            return made.question
        if read.stream is not None:
            self._running.tells(made.question.id, read.stream)
        ttl_seconds = self._desk.settings.response_ttl_seconds
        keeping = Keeping(
            StoredResponse(caller.client, made.question.id, secrets.token_hex(8), ttl_seconds),
            read.written,
            KeptItems(made.own) if before.joined is not None else before.said.kept.followed_by(made.own),
            _as_kept(read.given),
            self._tasks,
            self._looking,
            before.joined,
            made.own,
            before.after,
        )
        return replace(made.question, keep=keeping)

    def _past(self, client: AsyncClient) -> Past:
        return Past(client, self._looking)

    async def _seal(self, read: AskedResponse, caller: Caller) -> None:
        """What its answer has that only this server can read. Raises ApiError."""
        given, client, api_key = read.given, caller.client, caller.api_key
        if given.includes_encrypted_thoughts:
            read.written.seal_thoughts(await self._sealing.thoughts(client, api_key))
        if not given.context_management:
            return
        compacting = await self._compacting(given, read.body, client, api_key)
        if await compacting.is_longer_than(given.context_management[0].compact_threshold):
            made = await compacting.made()
            read.written.begins_with(await self._sealing.compaction(made.compaction, client, api_key))

    async def _compacting(
        self, given: ResponsesRequest, body: ChatRequest, client: AsyncClient, api_key: str
    ) -> Compacting:
        """Raises ApiError."""
        model = await self._desk.models.find(body.model, api_key)
        body = self._for_model(body, model)
        conversation = await prompts.conversation(
            body, model, self._on_overflow(body), is_short=False, linking=self.linking
        )
        if conversation is None:
            raise not_compactable("writes no head")
        return Compacting(body, model, conversation, bool(given.instructions), self._max_prompt_tokens, client)

    def _for_model(self, body: ChatRequest, model: TextModel) -> ChatRequest:
        return super()._for_model(fitting(body, model), model)

    def _held(self, body: ChatRequest, model: TextModel) -> Held:
        held = super()._held(body, model)
        return replace(held, form=_FORM) if held.form == "response_format" else held


def _as_kept(given: ResponsesRequest) -> dict[str, Any]:
    """A request without what is kept apart."""
    return given.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude=_KEPT_APART)
