"""The routes that generate: bodies into questions."""

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from kakeya import AsyncClient
from kakeya.text.chat_tokenizer import PromptRefused, PromptTooLong, TemplateStopped
from kakeya.text.rendering.budget import patience
from kakeya_http_shim.answers.answering import Answering, Question
from kakeya_http_shim.answers.chat_answer import ChatWriter
from kakeya_http_shim.answers.completion_answer import CompletionWriter
from kakeya_http_shim.answers.reply import Reply
from kakeya_http_shim.answers.writer import Writer
from kakeya_http_shim.choices import ask
from kakeya_http_shim.choices.ask import Ask
from kakeya_http_shim.models.model_tokenizer import Prompt
from kakeya_http_shim.models.served_models import ServedModels, TextModel
from kakeya_http_shim.problems import ApiError, context_length_exceeded
from kakeya_http_shim.requests import json_text
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.requests.completion_request import CompletionRequest
from kakeya_http_shim.requests.generation_fields import GenerationFields
from kakeya_http_shim.requests.messages import for_template
from kakeya_http_shim.routes.exchange import Exchange, House
from kakeya_http_shim.settings import HttpSettings

_INLINE_BYTES = 1024
"""A body of so many bytes is read and tokenized within a few milliseconds; larger ones leave the event loop free."""
_INLINE_SECONDS = 0.01
"""Of processor time for each text that a chat template writes there; most take a tenth of a millisecond."""
_DEFAULT_COMPLETION_TOKENS = 16

Body = TypeVar("Body", bound=GenerationFields)


@dataclass(frozen=True)
class Desk:
    """What the routes work with."""

    settings: HttpSettings
    client: AsyncClient
    models: ServedModels
    answering: Answering
    house: House


class GenerationRoute(ABC, Generic[Body]):
    """An ASGI endpoint that answers one kind of body.

    Attributes:
        body: its model.
        fields: which field of the body a field of the runtime's comes from.
    """

    body: type[Body]
    fields: ClassVar[Mapping[str, str]]

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises ApiError where the body is none of its kind."""
        json_text.check_media_type(scope)
        try:
            data = await _read(receive)
        except ClientDisconnect:
            return
        is_short = len(data) <= _INLINE_BYTES
        body = self.body.read(data) if is_short else await asyncio.to_thread(self.body.read, data)
        del data  # it may be large, and the answer may take long
        state = scope["state"]

        async def work(reply: Reply) -> None:
            question = await self._question(body, state["api_key"], state["request_id"], is_short=is_short)
            await self._desk.answering.answer(question, reply)

        await Exchange(self._desk.house, work, self.fields)(scope, receive, send)

    async def _question(self, body: Body, api_key: str, request_id: str, *, is_short: bool) -> Question:
        model = await self._desk.models.find(body.model, api_key)
        self._check(body, model)
        prompts = await self._written(body, model, is_short=is_short)
        asks = [choice for prompt in prompts for choice in self._ask(body, model, prompt, request_id)]
        writer = self._writer(body)
        return Question(
            id=f"{writer.id_prefix}{secrets.token_hex(16)}",
            asks=asks,
            client=self._desk.client.with_api_key(api_key),
            writer=writer,
            streams=bool(body.stream),
            includes_usage=body.includes_usage,
        )

    async def _written(self, body: Body, model: TextModel, *, is_short: bool) -> list[Prompt]:
        """Prompts of a short body are made here; a template that would keep the loop waiting goes on in a thread."""
        if is_short:
            try:
                with patience(_INLINE_SECONDS):
                    return self._prompts(body, model)
            except TemplateStopped as error:
                if not error.by_time:
                    raise _stopped(error) from error
        try:
            return await asyncio.to_thread(self._prompts, body, model)
        except TemplateStopped as error:
            raise _stopped(error) from error

    def _ask(self, body: Body, model: TextModel, prompt: Prompt, request_id: str) -> Sequence[Ask]:
        settings = self._desk.settings
        options = body.kakeya
        one = Ask(
            model=model,
            prompt=prompt,
            sampling=self._sampling(body),
            stop_texts=body.stop_texts,
            on_overflow=(options.on_overflow if options else None) or settings.on_overflow,
            label=f"http {request_id}",
        )
        return one.choices(body.num_choices)

    def _check(self, body: Body, model: TextModel) -> None:
        ask.check(
            body,
            model,
            num_answers=body.num_choices * self._num_prompts(body),
            max_choices=self._desk.settings.max_choices,
        )

    @property
    def _max_prompt_tokens(self) -> int:
        return self._desk.settings.max_prompt_tokens

    def _too_long(self) -> ApiError:
        longest = f"the {self._max_prompt_tokens:,} tokens that this server allows (--max-prompt-tokens)"
        return context_length_exceeded(f"the prompt is longer than {longest}", self.fields)

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
    """POST /v1/chat/completions."""

    body = ChatRequest
    fields: ClassVar[Mapping[str, str]] = {"token_ids": "messages", "spans": "messages"}

    def _num_prompts(self, body: ChatRequest) -> int:
        return 1

    def _prompts(self, body: ChatRequest, model: TextModel) -> list[Prompt]:
        try:
            prompt = model.tokenizer.chat_prompt(
                [for_template(message) for message in body.messages], max_tokens=self._max_prompt_tokens
            )
        except PromptTooLong as error:
            raise self._too_long() from error
        except PromptRefused as error:  # all else that a template raises is not the client's fault
            raise ApiError(400, str(error), param="messages", code="invalid_value") from error
        return [_checked(prompt, model, "messages")]

    def _sampling(self, body: ChatRequest) -> dict[str, object]:
        longest = body.longest_answer or self._desk.settings.default_max_tokens
        return ask.sampling(body, max_tokens=longest, logprobs=body.num_logprobs)

    def _writer(self, body: ChatRequest) -> Writer:
        return ChatWriter(has_logprobs=bool(body.logprobs), includes_usage=body.includes_usage)


class CompletionRoute(GenerationRoute[CompletionRequest]):
    """POST /v1/completions."""

    body = CompletionRequest
    fields: ClassVar[Mapping[str, str]] = {"token_ids": "prompt", "spans": "prompt"}

    def _num_prompts(self, body: CompletionRequest) -> int:
        return len(body.prompts)

    def _prompts(self, body: CompletionRequest, model: TextModel) -> list[Prompt]:
        return [self._prompt(given, model) for given in body.prompts]

    def _prompt(self, given: str | list[int], model: TextModel) -> Prompt:
        try:
            text = model.tokenizer.text_prompt
            prompt = text(given, max_tokens=self._max_prompt_tokens) if isinstance(given, str) else Prompt(given)
        except PromptTooLong as error:
            raise self._too_long() from error
        if len(prompt.token_ids) > self._max_prompt_tokens:
            raise self._too_long()
        return _checked(prompt, model, "prompt")

    def _sampling(self, body: CompletionRequest) -> dict[str, object]:
        longest = body.max_tokens or _DEFAULT_COMPLETION_TOKENS
        return ask.sampling(body, max_tokens=longest, logprobs=body.logprobs)

    def _writer(self, body: CompletionRequest) -> Writer:
        return CompletionWriter(
            num_choices=body.num_choices,
            has_logprobs=body.logprobs is not None,
            includes_usage=body.includes_usage,
        )


def _checked(prompt: Prompt, model: TextModel, field: str) -> Prompt:
    """Raises ApiError where it has no tokens, or one that the model does not know."""
    if not prompt.token_ids:
        raise ApiError(400, f"{field}: no tokens to go on from", param=field, code="invalid_value")
    ask.check_tokens(prompt.token_ids, model, field)
    return prompt


def _stopped(error: TemplateStopped) -> ApiError:
    """With a status that no client tries again at: it would be stopped as well."""
    return ApiError(400, f"the chat template was stopped: {error.reason}", param="messages", code="template_stopped")


async def _read(receive: Receive) -> bytes:
    pieces = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)
