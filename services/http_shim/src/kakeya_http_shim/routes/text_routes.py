"""The routes between text and tokens; none of them asks the model anything."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from pydantic import BaseModel, Field
from starlette.types import Receive, Scope, Send

from kakeya_http_shim.answers.reply import Reply
from kakeya_http_shim.choices import ask
from kakeya_http_shim.messages_api.messages_request import CountTokensRequest
from kakeya_http_shim.models.served_models import TextModel
from kakeya_http_shim.requests.text_requests import DetokenizeRequest, TemplateRequest, TokenizeRequest
from kakeya_http_shim.routes import bodies, offered_tools, prompts
from kakeya_http_shim.routes.desk import Desk
from kakeya_http_shim.routes.exchange import Exchange
from kakeya_http_shim.text.token_texts import TokenTexts

Body = TypeVar("Body", TokenizeRequest, DetokenizeRequest, TemplateRequest, CountTokensRequest)


class Tokens(BaseModel):
    """The tokens of a text."""

    count: int
    max_model_len: int = Field(description="as the list of models has it")
    tokens: list[int]
    token_strs: list[str] = Field([], description="with return_token_strs")


class Text(BaseModel):
    """The text of tokens, special ones included."""

    prompt: str = Field(description="as vLLM calls it")
    content: str = Field(description="the same, as llama.cpp calls it")


class Rendered(BaseModel):
    """A conversation as the chat template writes it."""

    prompt: str


class TextRoute(ABC, Generic[Body]):
    """An ASGI endpoint that answers one kind of body, behind the same admission as those that generate.

    Attributes:
        body: its model.
    """

    body: type[Body]

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises ApiError where the body is none of its kind."""
        read = await bodies.read(self.body.read, scope, receive)
        if read is None:
            return
        body, is_short = read

        async def work(reply: Reply) -> None:
            model = await self._desk.models.find(body.model, scope["state"]["api_key"])
            written = await prompts.without_waiting(lambda: self._written(body, model), is_short=is_short)
            await reply.whole(written)

        await Exchange(self._desk.house, work)(scope, receive, send)

    def _written(self, body: Body, model: TextModel) -> bytes:
        return self._answer(body, model).model_dump_json(exclude_unset=True).encode()

    @property
    def _max_tokens(self) -> int:
        return self._desk.settings.max_prompt_tokens

    @abstractmethod
    def _answer(self, body: Body, model: TextModel) -> BaseModel:
        """Raises ApiError."""


class TokenizeRoute(TextRoute[TokenizeRequest]):
    """POST /tokenize."""

    body = TokenizeRequest

    def _answer(self, body: TokenizeRequest, model: TextModel) -> Tokens:
        token_ids = self._token_ids(body, model)
        texts = TokenTexts(model.tokenizer)
        strings = {"token_strs": [texts.text(token_id) for token_id in token_ids]} if body.return_token_strs else {}
        return Tokens(count=len(token_ids), max_model_len=model.served.num_lane_tokens, tokens=token_ids, **strings)

    def _token_ids(self, body: TokenizeRequest, model: TextModel) -> list[int]:
        if body.messages is not None:
            offered_tools.check(body.offered, model)
            return prompts.chat(body.messages, body, model, max_tokens=self._max_tokens).token_ids
        field, given = ("prompt", body.prompt) if body.prompt is not None else ("content", body.content or "")
        return prompts.encoded(
            given,
            model,
            field=field,
            special_tokens=body.adds_special_tokens,
            parses=body.parse_special,
            max_tokens=self._max_tokens,
        )


class DetokenizeRoute(TextRoute[DetokenizeRequest]):
    """POST /detokenize."""

    body = DetokenizeRequest

    def _answer(self, body: DetokenizeRequest, model: TextModel) -> Text:
        ask.check_tokens(body.tokens, model, "tokens")
        text = model.tokenizer.decode(body.tokens, special_tokens=True)
        return Text(prompt=text, content=text)


class TemplateRoute(TextRoute[TemplateRequest]):
    """POST /apply-template."""

    body = TemplateRequest

    def _answer(self, body: TemplateRequest, model: TextModel) -> Rendered:
        offered_tools.check(body.offered, model)
        return Rendered(prompt=prompts.rendered(body.messages, body, model))
