"""Streams of stored responses that another server has begun, and was lost with: gone on with here."""

import asyncio
import json
import secrets
from dataclasses import dataclass, replace
from typing import Final, cast

from starlette.types import Scope

from kakeya import (
    AsyncClient,
    AsyncGeneration,
    HistoryLengthMismatch,
    InvalidRequest,
    InvariantViolated,
    KakeyaError,
    OperationStopped,
    SessionNotFound,
    WorkerLost,
)
from kakeya_http_shim.answers.question import Question
from kakeya_http_shim.choices.ask import Ask, Live, Resumed
from kakeya_http_shim.conversations.way import Way
from kakeya_http_shim.live.lasting_answer import LastingAnswer
from kakeya_http_shim.models.prompt import Prompt
from kakeya_http_shim.models.served_models import TextModel
from kakeya_http_shim.problems import ApiError, from_kakeya
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.responses_api.as_chat import chat_request, items_of
from kakeya_http_shim.responses_api.kept.kept_items import KeptItems
from kakeya_http_shim.responses_api.kept.kept_response import Conversation, KeptResponse
from kakeya_http_shim.responses_api.responses_request import ResponsesRequest
from kakeya_http_shim.responses_api.responses_writer import ResponsesWriter
from kakeya_http_shim.responses_api.told_stream import Run
from kakeya_http_shim.routes.asked import Asked, Caller
from kakeya_http_shim.routes.responses.conversation_store import Conversations
from kakeya_http_shim.routes.responses.keeping import Joined, Keeping
from kakeya_http_shim.routes.responses.past import CONVERSATION, PREVIOUS_NOT_FOUND
from kakeya_http_shim.routes.responses.response_route import AskedResponse, ResponsesRoute
from kakeya_http_shim.routes.responses.stored_response import IN_PROGRESS, StoredResponse, fetched

_LOST: Final = (
    *(SessionNotFound, HistoryLengthMismatch, OperationStopped),
    *(WorkerLost, InvariantViolated, InvalidRequest),
)
"""An answer that cannot be gone on with any more ends so."""


@dataclass(frozen=True)
class Taken:
    """A response that another server has begun, and that is this one's from now on.

    Attributes:
        before: what was said before its items.
        run: as it is kept.
        generation: that has begun here.
    """

    kept: KeptResponse
    before: Conversation
    run: Run
    stored: StoredResponse
    generation: AsyncGeneration

    @property
    def items(self) -> KeptItems:
        """As it has them at its end."""
        return self.kept.items if self.kept.after is None else self.before.kept.followed_by(self.kept.items)


@dataclass(frozen=True, kw_only=True)
class _AskedAgain(AskedResponse):
    taken: Taken


class ResumedRoute(ResponsesRoute):
    """Goes on with one; the events of its stream are those that its client has got, with their numbers."""

    async def stream(self, client: AsyncClient, response_id: str, scope: Scope) -> LastingAnswer | None:
        """From its first event on; None: it is another server's by now, or cannot be gone on with. Raises ApiError."""
        taken = await self._taken(client, response_id)
        if taken is None:
            return None
        try:
            asked = await self._asked(taken, client, scope["state"]["api_key"])
        except BaseException:
            taken.generation.cancel()
            raise
        stream = self.lasting(asked, scope)
        self._running.tells(response_id, stream)
        return stream

    async def _taken(self, client: AsyncClient, response_id: str) -> Taken | None:
        kept, version = await fetched(client, response_id)
        if kept.status != IN_PROGRESS or kept.run is None:
            return None
        try:
            before = await self._past(client).before_items(kept)
        except ApiError as error:
            if error.code != PREVIOUS_NOT_FOUND:
                raise
            await self._looking.settle(client, kept, kept.run, version)
            return None
        run = replace(kept.run, by=secrets.token_hex(8))
        kept = replace(kept, run=run)
        stored = StoredResponse(client, response_id, run.by, self._desk.settings.response_ttl_seconds, version)
        if not await stored.write_unchanged(kept):
            return None
        try:
            generation = client.go_on(run.resumption, run.num_prompt_tokens)
            await generation.begin()
        except _LOST:
            await self._looking.settle(client, kept, run, stored.version)
            return None
        except KakeyaError as error:
            raise from_kakeya(error) from error
        return Taken(kept, before, run, stored, generation)

    async def _asked(self, taken: Taken, client: AsyncClient, api_key: str) -> AskedResponse:
        given, before = await asyncio.to_thread(_as_given, taken), taken.before
        unsealed = await self._sealing.unsealed(given, before.items, client, api_key)
        body = await asyncio.to_thread(chat_request, given, before.stretches, unsealed)
        writer = ResponsesWriter.going_on(given, taken.kept.response)
        return _AskedAgain(body, writer, False, last_events=writer.failure, given=given, written=writer, taken=taken)

    def _is_over(self, read: AskedResponse) -> None:
        cast(_AskedAgain, read).taken.generation.cancel()  # unless it has ended

    async def _question(self, asked: Asked[ChatRequest], caller: Caller) -> Question:
        read = cast(_AskedAgain, asked)  # as `_asked` has made it
        if read.given.includes_encrypted_thoughts:
            read.written.seal_thoughts(await self._sealing.thoughts(caller.client, caller.api_key))
        taken, model = read.taken, await self._desk.models.find(read.body.model, caller.api_key)
        body = self._for_model(read.body, model)
        place = taken.kept.behind
        keeping = Keeping(
            taken.stored,
            read.written,
            taken.items,
            taken.run.request,
            self._tasks,
            self._looking,
            Joined(Conversations(caller.client, self._looking.ttl_seconds, CONVERSATION), place) if place else None,
            run=taken.run,
        )
        return Question(
            id=taken.stored.response_id,
            operation=self.operation,
            asks=[await self._ask_again(taken, body, model, caller)],
            client=caller.client,
            writer=read.written,
            streams=True,
            includes_usage=body.includes_usage,
            created=int(taken.kept.response["created_at"]),
            keep=keeping,
        )

    async def _ask_again(self, taken: Taken, body: ChatRequest, model: TextModel, caller: Caller) -> Ask:
        run, said = taken.run, taken.run.said
        prompt = Prompt([], is_chat=True, begins=run.begins)
        ask = replace(self._ask(body, model, prompt, caller.request_id), resumed=Resumed(taken.generation, run.opened))
        chat = await self._chat(body, model, caller) if said is not None and said.session_id else None
        if chat is None or said is None:
            return ask
        way = Way(
            said.state,
            said.why,
            prompt,
            source=said.session_id,
            place=run.num_prompt_tokens,
            source_length=run.num_prompt_tokens,
            num_reused=said.num_reused,
        )
        return replace(ask, live=Live(chat, way))


def _as_given(taken: Taken) -> ResponsesRequest:
    """The request, with all items that are kept with it."""
    given = ResponsesRequest.read(json.dumps(taken.run.request).encode())
    return given.model_copy(update={"input": items_of(taken.kept.items.stretches)})
