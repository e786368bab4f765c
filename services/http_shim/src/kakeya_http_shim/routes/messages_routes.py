"""The routes of Anthropic's Messages: each body is worked on as the chat that it is."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, Field
from starlette.types import Receive, Scope

from kakeya_http_shim.answers.writer import Writer
from kakeya_http_shim.choices import thoughts
from kakeya_http_shim.messages_api.as_chat import chat_request
from kakeya_http_shim.messages_api.betas import ignored_betas
from kakeya_http_shim.messages_api.messages_request import CountTokensRequest, MessagesRequest
from kakeya_http_shim.messages_api.messages_writer import MessagesWriter
from kakeya_http_shim.models.served_models import TextModel
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.routes import bodies, offered_tools, prompts
from kakeya_http_shim.routes.asked import Asked
from kakeya_http_shim.routes.chat_prompts import fitting
from kakeya_http_shim.routes.generation_routes import ChatRoute
from kakeya_http_shim.routes.text_routes import TextRoute


class CountedTokens(BaseModel):
    """How many tokens the messages are, with the beginning of an answer."""

    input_tokens: int = Field(description="by the model's own chat template and tokenizer, to the token")


class MessagesRoute(ChatRoute):
    """POST /v1/messages."""

    fields: ClassVar[Mapping[str, str]] = {**ChatRoute.fields, "grammar.json_schema": "output_config.format"}
    schemas: ClassVar[str] = "tools[{}].input_schema"

    async def _read(self, scope: Scope, receive: Receive) -> Asked[ChatRequest] | None:
        read = await bodies.read(_understood, scope, receive)
        if read is None:
            return None
        (body, writer), is_short = read
        return Asked(body, writer, is_short, ignored_betas(scope))

    def _for_model(self, body: ChatRequest, model: TextModel) -> ChatRequest:
        return super()._for_model(fitting(body, model), model)


class CountTokensRoute(TextRoute[CountTokensRequest]):
    """POST /v1/messages/count_tokens."""

    body = CountTokensRequest

    def _answer(self, body: CountTokensRequest, model: TextModel) -> CountedTokens:
        chat = thoughts.asked_for(fitting(chat_request(body), model), model)
        offered_tools.check(chat.offered, model)
        prompt = prompts.chat(chat.messages, chat, model, max_tokens=self._max_tokens)
        return CountedTokens(input_tokens=len(prompt.token_ids))


def _understood(data: bytes) -> tuple[ChatRequest, Writer]:
    given = MessagesRequest.read(data)
    return chat_request(given), MessagesWriter(given)
