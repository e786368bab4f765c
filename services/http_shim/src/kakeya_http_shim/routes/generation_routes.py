"""The routes that generate: bodies into questions."""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Generic, Literal

from starlette.types import Receive, Scope, Send

from kakeya import InvalidField
from kakeya_http_shim.answers.chat_answer import ChatWriter
from kakeya_http_shim.answers.completion_answer import CompletionWriter
from kakeya_http_shim.answers.question import Operation, Question
from kakeya_http_shim.answers.reply import Reply
from kakeya_http_shim.answers.writer import Writer
from kakeya_http_shim.choices import ask, thoughts
from kakeya_http_shim.choices.ask import Ask, Live
from kakeya_http_shim.choices.forgetting import Watch
from kakeya_http_shim.choices.held import Held
from kakeya_http_shim.conversations.branches import Branches
from kakeya_http_shim.conversations.chat import Chat, Linking
from kakeya_http_shim.conversations.way import Way
from kakeya_http_shim.models.prompt import Prompt
from kakeya_http_shim.models.served_models import TextModel
from kakeya_http_shim.problems import ApiError, from_kakeya
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.requests.completion_request import CompletionRequest
from kakeya_http_shim.routes import bodies, offered_tools, prompts
from kakeya_http_shim.routes.asked import Asked, Body, Caller
from kakeya_http_shim.routes.chat_prompts import ChatPrompts
from kakeya_http_shim.routes.desk import Desk
from kakeya_http_shim.routes.exchange import Exchange
from kakeya_http_shim.text.calling import Calling

_DEFAULT_COMPLETION_TOKENS = 16
_GRAMMAR_FIELDS = {
    "grammar.json_schema": "response_format",
    "grammar.regex": "kakeya.regex",
    "grammar.choice": "kakeya.choice",
    "grammar.lark": "kakeya.grammar",
}


class GenerationRoute(ABC, Generic[Body]):
    """An ASGI endpoint that answers one kind of body.

    Attributes:
        body: its model.
        fields: which field of the body a field of the runtime's comes from.
        operation: as traces name it.
    """

    body: type[Body]
    operation: ClassVar[Operation] = "chat"
    fields: ClassVar[Mapping[str, str]]

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises ApiError where the body is none of its kind."""
        if (asked := await self._read(scope, receive)) is not None:
            await self.answer(asked, scope, receive, send)

    async def answer(self, asked: Asked[Body], scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request that was read. Raises ApiError."""
        caller = Caller.of(scope, self._desk.client, asked)

        async def work(reply: Reply) -> None:
            reply.headers.update(asked.headers)
            reply.last_events = asked.last_events
            question = await self._question(asked, caller)
            try:
                await self._desk.answering.answer(question, reply)
            except InvalidField as error:
                raise self._refusal(error, asked.body, question.asks[0].model) from error

        await Exchange(self._desk.house, work, self.fields)(scope, receive, send)

    async def _read(self, scope: Scope, receive: Receive) -> Asked[Body] | None:
        """None where the client left. Raises ApiError."""
        read = await bodies.read(self.body.read, scope, receive)
        if read is None:
            return None
        body, is_short = read
        return Asked(body, self._writer(body), is_short)

    async def _question(self, asked: Asked[Body], caller: Caller) -> Question:
        model = await self._desk.models.find(asked.body.model, caller.api_key)
        body = self._for_model(asked.body, model)
        self._check(body, model)
        return Question(
            id=f"{asked.writer.id_prefix}{secrets.token_hex(16)}",
            operation=self.operation,
            asks=await self._asks(body, model, caller),
            client=caller.client,
            writer=asked.writer,
            streams=bool(body.stream),
            includes_usage=body.includes_usage,
            tells_usage=body.tells_usage,
        )

    async def _asks(self, body: Body, model: TextModel, caller: Caller) -> Sequence[Ask]:
        """The answers, prompt by prompt, each in a session of its own. Raises ApiError."""
        caller.wanted.check_live(False)
        made = await prompts.without_waiting(lambda: self._prompts(body, model), is_short=caller.is_short)
        return [
            choice
            for prompt in made
            for choice in self._ask(body, model, prompt, caller.request_id).choices(body.num_choices)
        ]

    def _ask(self, body: Body, model: TextModel, prompt: Prompt, request_id: str) -> Ask:
        told = self._held(body, model).told(thoughts.bound(body, model), model, prompt)
        calling = self._calling(body, model)
        if calling is not None and told.keys() >= {"grammar", "reasoning"}:
            calling = replace(calling, begins_in_thought=None)  # no call is held there
        return Ask(
            model=model,
            prompt=prompt,
            sampling={**self._sampling(body), **told},
            stop_texts=body.stop_texts,
            on_overflow=self._on_overflow(body),
            label=f"http {request_id}",
            stop_token_ids=frozenset(body.stop_token_ids or ()),
            echoes=self._echoes(body),
            calling=calling,
        )

    def _held(self, body: Body, model: TextModel) -> Held:
        """What its answers are held to. Raises ApiError."""
        return Held(body.held_to, body.form)

    def _refusal(self, error: InvalidField, body: Body, model: TextModel) -> ApiError:
        """What a field is at fault for, as the runtime says it."""
        return from_kakeya(error, self.fields)

    def _on_overflow(self, body: Body) -> Literal["evict", "refuse"]:
        options = body.kakeya
        return (options.on_overflow if options else None) or self._desk.settings.on_overflow

    def _check(self, body: Body, model: TextModel) -> None:
        ask.check(
            body,
            model,
            num_answers=body.num_choices * self._num_prompts(body),
            max_choices=self._desk.settings.max_choices,
            is_held=self._held(body, model).grammar is not None,
        )

    @property
    def _max_prompt_tokens(self) -> int:
        return self._desk.settings.max_prompt_tokens

    def _echoes(self, body: Body) -> bool:
        return False

    def _calling(self, body: Body, model: TextModel) -> Calling | None:
        """How its answers call tools. Raises ApiError."""
        return None

    def _for_model(self, body: Body, model: TextModel) -> Body:
        """The request, with what depends on the model."""
        return body

    @abstractmethod
    def _num_prompts(self, body: Body) -> int: ...

    @abstractmethod
    def _prompts(self, body: Body, model: TextModel) -> list[Prompt]:
        """Raises ApiError where the model cannot be given this."""

    @abstractmethod
    def _sampling(self, body: Body) -> dict[str, object]: ...

    @abstractmethod
    def _writer(self, body: Body) -> Writer: ...


class ChatRoute(GenerationRoute[ChatRequest]):
    """POST /v1/chat/completions.

    Attributes:
        schemas: where the schema of a tool is in the body, by the tool's place.
        linking: of the tags of its conversations.
    """

    body = ChatRequest
    schemas: ClassVar[str] = "tools[{}].function.parameters"
    linking = Linking()
    fields: ClassVar[Mapping[str, str]] = {**_GRAMMAR_FIELDS, "token_ids": "messages", "spans": "messages"}

    def _num_prompts(self, body: ChatRequest) -> int:
        return 1

    def _check(self, body: ChatRequest, model: TextModel) -> None:
        super()._check(body, model)
        offered_tools.check(body.offered, model)
        self._calling(body, model)

    def _for_model(self, body: ChatRequest, model: TextModel) -> ChatRequest:
        return thoughts.asked_for(body, model)

    def _held(self, body: ChatRequest, model: TextModel) -> Held:
        return offered_tools.held(body, model) or super()._held(body, model)

    def _refusal(self, error: InvalidField, body: ChatRequest, model: TextModel) -> ApiError:
        return offered_tools.refusal(error, body, model, self.schemas) or super()._refusal(error, body, model)

    def _calling(self, body: ChatRequest, model: TextModel) -> Calling | None:
        if body.offered is None or body.tool_choice == "none":
            return None
        return offered_tools.calling(body.offered, model, only_first=body.parallel_tool_calls is False)

    def _ask(self, body: ChatRequest, model: TextModel, prompt: Prompt, request_id: str) -> Ask:
        return replace(super()._ask(body, model, prompt, request_id), watch=Watch.of(body, model))

    async def _asks(self, body: ChatRequest, model: TextModel, caller: Caller) -> Sequence[Ask]:
        """In the conversation's live session, where it has one, or opens one. Raises ApiError, KakeyaError."""
        if self._desk.settings.live_sessions == "off":
            return await super()._asks(body, model, caller)
        chat = await self._chat(body, model, caller)
        if chat is None:
            return [replace(each, why_not_live="off") for each in await super()._asks(body, model, caller)]
        way = await self._way(chat, caller, body.num_choices)
        one = self._ask(body, model, way.prompt, caller.request_id)
        if way.why == "off":
            return [replace(each, why_not_live="off") for each in one.choices(body.num_choices)]
        if body.num_choices == 1:
            return [replace(one, live=Live(chat, way))]
        branches = Branches(body.num_choices - 1)
        several = enumerate(one.choices(body.num_choices))
        return [replace(each, live=Live(chat, way, branches, is_first=index == 0)) for index, each in several]

    async def _chat(self, body: ChatRequest, model: TextModel, caller: Caller) -> Chat | None:
        """None: it gets its answer in a session that ends with it."""
        if body.end != "answer":
            return None
        conversation = await prompts.conversation(
            body, model, self._on_overflow(body), is_short=caller.is_short, linking=self.linking
        )
        if conversation is None:
            return None
        rendering = ChatPrompts(body, model, conversation, self._max_prompt_tokens, caller.is_short)
        return Chat(conversation, rendering, caller.owner, caller.park_after_seconds)

    async def _way(self, chat: Chat, caller: Caller, num_choices: int) -> Way:
        finding, wanted = self._desk.finding, caller.wanted
        if num_choices == 1 and wanted.is_any and (likely := await finding.likely(chat)):
            return likely
        await caller.confirm()
        if wanted.is_new:
            return await finding.anew(caller.client, chat, "asked")
        return await finding.way(caller.client, chat, wanted.session_id)

    def _prompts(self, body: ChatRequest, model: TextModel) -> list[Prompt]:
        return [prompts.whole_chat(body, model, max_tokens=self._max_prompt_tokens)]

    def _sampling(self, body: ChatRequest) -> dict[str, object]:
        settings = self._desk.settings
        longest = body.longest_answer or settings.default_max_tokens
        if not body.ignore_eos:  # that promises all of them, so the router says what is too much
            longest = min(longest, settings.max_answer_tokens)
        return ask.sampling(body, max_tokens=longest, logprobs=body.num_logprobs)

    def _writer(self, body: ChatRequest) -> Writer:
        return ChatWriter(has_logprobs=bool(body.logprobs), includes_usage=body.includes_usage)


class CompletionRoute(GenerationRoute[CompletionRequest]):
    """POST /v1/completions."""

    body = CompletionRequest
    operation = "text_completion"
    fields: ClassVar[Mapping[str, str]] = {**_GRAMMAR_FIELDS, "token_ids": "prompt", "spans": "prompt"}

    def _num_prompts(self, body: CompletionRequest) -> int:
        return len(body.prompts)

    def _prompts(self, body: CompletionRequest, model: TextModel) -> list[Prompt]:
        return [self._prompt(given, model) for given in body.prompts]

    def _prompt(self, given: str | list[int], model: TextModel) -> Prompt:
        if isinstance(given, str):
            return prompts.text(given, model, max_tokens=self._max_prompt_tokens)
        return prompts.tokens(given, model, max_tokens=self._max_prompt_tokens)

    def _echoes(self, body: CompletionRequest) -> bool:
        return bool(body.echo)

    def _sampling(self, body: CompletionRequest) -> dict[str, object]:
        longest = _DEFAULT_COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
        return ask.sampling(body, max_tokens=longest, logprobs=body.logprobs)

    def _writer(self, body: CompletionRequest) -> Writer:
        has_logprobs, includes_usage = body.logprobs is not None, body.includes_usage
        return CompletionWriter(num_choices=body.num_choices, has_logprobs=has_logprobs, includes_usage=includes_usage)
