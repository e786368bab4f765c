"""The routes of Ollama's API: bodies are worked on as the chats that they are; models; what is refused."""

from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import ClassVar, Final

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from kakeya_http_shim.answers.reply import Reply
from kakeya_http_shim.choices import ask, thoughts
from kakeya_http_shim.conversations.chat import Chat, Linking
from kakeya_http_shim.models.served_models import TextModel
from kakeya_http_shim.ollama_api import described_models
from kakeya_http_shim.ollama_api.as_chat import chat_request, prompt_request
from kakeya_http_shim.ollama_api.described_models import OllamaVersion
from kakeya_http_shim.ollama_api.durations import idle_seconds
from kakeya_http_shim.ollama_api.ollama_requests import (
    OllamaChatRequest,
    OllamaFields,
    OllamaGenerateRequest,
    OllamaShowRequest,
)
from kakeya_http_shim.ollama_api.ollama_writer import OllamaWriter
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.requests.completion_request import CompletionRequest
from kakeya_http_shim.routes import bodies
from kakeya_http_shim.routes.asked import Asked, Body, Caller
from kakeya_http_shim.routes.desk import Desk
from kakeya_http_shim.routes.exchange import Exchange
from kakeya_http_shim.routes.generation_routes import ChatRoute, CompletionRoute

FOLLOWED: Final = "0.32.7"
"""The version of Ollama whose API is followed. Clients look for it, and do not use one that is too old."""

_OPERATORS = "models are served as the operator of the runtime has set it up"
_NO_EMBEDDINGS = "the runtime answers, and makes no embeddings"
_NO_ACCOUNT = "there is no account, nothing is asked of ollama.com"
NOT_SERVED: Final[Mapping[str, str]] = {
    "/api/pull": _OPERATORS,
    "/api/push": _OPERATORS,
    "/api/create": _OPERATORS,
    "/api/copy": _OPERATORS,
    "/api/delete": _OPERATORS,
    "/api/blobs/{digest}": _OPERATORS,
    "/api/embed": _NO_EMBEDDINGS,
    "/api/embeddings": _NO_EMBEDDINGS,
    "/api/me": _NO_ACCOUNT,
    "/api/signout": _NO_ACCOUNT,
    "/api/web_search": _NO_ACCOUNT,
    "/api/web_fetch": _NO_ACCOUNT,
}
"""Paths, and why."""
REFUSED_METHODS: Final = ("POST", "DELETE", "HEAD")

_GRAMMAR_FIELDS: Mapping[str, str] = {"grammar.json_schema": "format"}


class OllamaChatRoute(ChatRoute):
    """POST /api/chat, once it is read."""

    fields: ClassVar[Mapping[str, str]] = {**ChatRoute.fields, **_GRAMMAR_FIELDS}
    linking = Linking(numbers_calls=True)

    def _for_model(self, body: ChatRequest, model: TextModel) -> ChatRequest:
        if body.enable_thinking and not thoughts.can_be_asked_for(model):
            raise ApiError(400, f"think: {model.name!r} does not support thinking", param="think", code="invalid_value")
        return super()._for_model(body, model)


class OllamaPromptRoute(OllamaChatRoute):
    """POST /api/generate of a prompt, once it is read: it is no part of a conversation."""

    fields: ClassVar[Mapping[str, str]] = {**OllamaChatRoute.fields, "token_ids": "prompt", "spans": "prompt"}

    async def _chat(self, body: ChatRequest, model: TextModel, caller: Caller) -> Chat | None:
        return None


class OllamaRawRoute(CompletionRoute):
    """POST /api/generate of a text to go on with, once it is read."""

    fields: ClassVar[Mapping[str, str]] = {**CompletionRoute.fields, **_GRAMMAR_FIELDS}

    def _sampling(self, body: CompletionRequest) -> dict[str, object]:
        longest = body.max_tokens or self._desk.settings.default_max_tokens
        return ask.sampling(body, max_tokens=longest, logprobs=None)


class OllamaChats:
    """POST /api/chat."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._chats = OllamaChatRoute(desk)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises ApiError where the body is none of its kind."""
        read = await bodies.read(_chat, scope, receive)
        if read is None:
            return
        (given, body), is_short = read
        if body is None:
            await _loaded(self._desk, given, scope["state"]["api_key"])(scope, receive, send)
        else:
            await self._chats.answer(_asked(given, body, is_short), scope, receive, send)


class OllamaPrompts:
    """POST /api/generate."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._prompts = OllamaPromptRoute(desk)
        self._raw = OllamaRawRoute(desk)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises ApiError where the body is none of its kind."""
        read = await bodies.read(_prompt, scope, receive)
        if read is None:
            return
        (given, body), is_short = read
        match body:
            case None:
                await _loaded(self._desk, given, scope["state"]["api_key"])(scope, receive, send)
            case ChatRequest():
                await self._prompts.answer(_asked(given, body, is_short), scope, receive, send)
            case CompletionRequest():
                await self._raw.answer(_asked(given, body, is_short), scope, receive, send)


def _chat(data: bytes) -> tuple[OllamaChatRequest, ChatRequest | None]:
    given = OllamaChatRequest.read(data)
    return given, chat_request(given)


def _prompt(data: bytes) -> tuple[OllamaGenerateRequest, ChatRequest | CompletionRequest | None]:
    given = OllamaGenerateRequest.read(data)
    return given, prompt_request(given)


def _asked(given: OllamaFields, body: Body, is_short: bool) -> Asked[Body]:
    idle = None if given.keep_alive is None else idle_seconds(given.keep_alive)
    return Asked(body, OllamaWriter(given), is_short, park_after_seconds=idle)


def _loaded(desk: Desk, given: OllamaFields, api_key: str) -> Exchange:
    """The answer to a request that asks for nothing, as clients do to load a model or unload it: it stays loaded."""
    writer = OllamaWriter(given)

    async def work(reply: Reply) -> None:
        await desk.models.find(given.model, api_key)
        await reply.whole(writer.loaded())

    return Exchange(desk.house, work)


class OllamaListing:
    """GET /api/tags, /api/ps and /api/version, and what is not served."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._started_at = _now()
        self._version = OllamaVersion(version=FOLLOWED, kakeya=metadata.version("kakeya-http-shim"))

    async def tags(self, request: Request) -> Response:
        """Raises ApiError."""
        listed = await self._desk.models.listed(request.state.api_key)
        return _json(described_models.listed(listed, self._started_at))

    async def running(self, request: Request) -> Response:
        """Raises ApiError."""
        return _json(described_models.running(await self._desk.models.listed(request.state.api_key)))

    async def version(self, _: Request) -> Response:
        """Of Ollama, and of this server."""
        return _json(self._version)

    async def refuse(self, request: Request) -> Response:
        """Raises ApiError."""
        path = request.scope["route"].path
        raise ApiError(501, f"{request.url.path} is not supported: {NOT_SERVED[path]}", code="unsupported")


class OllamaShow:
    """POST /api/show."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._started_at = _now()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises ApiError where the body is none of its kind."""
        read = await bodies.read(OllamaShowRequest.read, scope, receive)
        if read is None:
            return
        given, _ = read

        async def work(reply: Reply) -> None:
            model = await self._desk.models.find(given.wanted, scope["state"]["api_key"])
            await reply.whole(described_models.shown(model, self._started_at).model_dump_json().encode())

        await Exchange(self._desk.house, work)(scope, receive, send)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _json(answer: BaseModel) -> JSONResponse:
    return JSONResponse(answer.model_dump())
