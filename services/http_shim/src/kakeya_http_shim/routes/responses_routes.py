"""The route of Responses: each body is worked on as the chat that it is."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from starlette.types import Receive, Scope

from kakeya_http_shim.choices.held import Held
from kakeya_http_shim.models.served_models import TextModel
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.responses_api.as_chat import chat_request
from kakeya_http_shim.responses_api.responses_request import ResponsesRequest
from kakeya_http_shim.responses_api.responses_writer import ResponsesWriter
from kakeya_http_shim.routes import bodies
from kakeya_http_shim.routes.asked import Asked
from kakeya_http_shim.routes.chat_prompts import fitting
from kakeya_http_shim.routes.generation_routes import ChatRoute

_FORM = "text.format"


class ResponsesRoute(ChatRoute):
    """POST /v1/responses."""

    fields: ClassVar[Mapping[str, str]] = {
        **ChatRoute.fields,
        "grammar.json_schema": _FORM,
        "max_tokens": "max_output_tokens",
    }
    schemas: ClassVar[str] = "tools[{}].parameters"

    async def _read(self, scope: Scope, receive: Receive) -> Asked[ChatRequest] | None:
        read = await bodies.read(self._understood, scope, receive)
        if read is None:
            return None
        (body, writer), is_short = read
        return Asked(body, writer, is_short, last_events=writer.failure)

    def _understood(self, data: bytes) -> tuple[ChatRequest, ResponsesWriter]:
        given = ResponsesRequest.read(data)
        return chat_request(given), ResponsesWriter(given, self._desk.settings.on_overflow)

    def _held(self, body: ChatRequest, model: TextModel) -> Held:
        held = super()._held(body, model)
        return replace(held, form=_FORM) if held.form == "response_format" else held

    def _for_model(self, body: ChatRequest, model: TextModel) -> ChatRequest:
        return super()._for_model(fitting(body, model), model)
