"""The OpenAPI document, made from the models that read the requests and write the answers."""

from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from kakeya_http_shim.answers.chat_answer import ChatChunk, ChatCompletion
from kakeya_http_shim.answers.completion_answer import Completion
from kakeya_http_shim.messages_api.answer_events import STREAM_EVENTS, MessageAnswer, MessagesError
from kakeya_http_shim.messages_api.messages_request import CountTokensRequest, MessagesRequest
from kakeya_http_shim.ollama_api.answer_lines import ChatLine, GenerateLine, OllamaError
from kakeya_http_shim.ollama_api.described_models import OllamaList, OllamaRunningList, OllamaShown, OllamaVersion
from kakeya_http_shim.ollama_api.ollama_requests import OllamaChatRequest, OllamaGenerateRequest, OllamaShowRequest
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.requests.completion_request import CompletionRequest
from kakeya_http_shim.requests.text_requests import DetokenizeRequest, TemplateRequest, TokenizeRequest
from kakeya_http_shim.routes.listing_routes import Health, Model, ModelList, Version
from kakeya_http_shim.routes.messages_routes import CountedTokens
from kakeya_http_shim.routes.text_routes import Rendered, Text, Tokens

_STATUSES = {
    400: "a field is at fault, which `param` names; or the request itself",
    401: "no key, or one that is not good",
    403: "the key is good, and not for this",
    404: "there is no such model, or no such session",
    409: "the messages do not lead to a place of the session that is named",
    408: "the body did not come in time",
    413: "the body is too large",
    415: "the body is not said to be JSON in UTF-8, or is compressed in a way that is not served",
    429: "too many requests, or a quota is used up; Retry-After says when to come again",
    500: "unforeseen",
    503: "not now; Retry-After says when to come again",
}
_ANSWERED = "as asked; a stream is server-sent events whose data are such objects each, and `[DONE]` in the end"
_MESSAGES_ANSWERED = "as asked; a stream is server-sent events, each with the name that its data have as `type`"
_OLLAMA_ANSWERED = "as asked; a stream is lines of JSON, such an object each"
_WITH_RETRY_AFTER = (429, 503)
_OF_ANY_REQUEST = (400, 408, 413, 415, 500, 503)
"""Whatever it asks for: its head, its body, or this server may be at fault."""


class ErrorBody(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(BaseModel):
    """The answer to a request that failed; in a stream the data of its last event."""

    error: ErrorBody


@cache
def document(version: str, *, max_choices: int) -> dict[str, Any]:
    """OpenAPI 3.1.0; made once, and not to be changed.

    Args:
        max_choices: answers that one request may ask for.
    """
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Kakeya",
            "version": version,
            "summary": "OpenAI's API, Anthropic's Messages and Ollama's API over sessions with bounded KV",
            "description": "Each path below /v1 is served without that, too, and each path with a slash at its end.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": _paths(),
        "components": {
            "schemas": _schemas(max_choices),
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _paths() -> dict[str, Any]:
    return {
        "/v1/chat/completions": {"post": _in_sessions(_generation("chat", ChatRequest, ChatCompletion, ChatChunk))},
        "/v1/completions": {"post": _generation("complete", CompletionRequest, Completion, Completion)},
        "/v1/messages": {"post": _as_anthropic(_in_sessions(_messages()))},
        "/v1/messages/count_tokens": {
            "post": _as_anthropic(_of_text("countTokens", CountTokensRequest, CountedTokens))
        },
        "/v1/models": {"get": _listing("models", "The models that are served now.", ModelList)},
        "/v1/models/{id}": {
            "get": _listing("model", "One model.", Model, 404)
            | {"parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]}
        },
        **_ollama_paths(),
        "/tokenize": {"post": _of_text("tokenize", TokenizeRequest, Tokens)},
        "/detokenize": {"post": _of_text("detokenize", DetokenizeRequest, Text)},
        "/apply-template": {"post": _of_text("applyTemplate", TemplateRequest, Rendered)},
        "/version": {"get": _listing("version", "Which server this is.", Version)},
        "/": {"get": _open("root", "Whether this process is alive.", _json(Health))},
        "/healthz": {"get": _open("alive", "Whether this process is alive.", _json(Health))},
        **{
            path: {"get": _open(name, "Whether the runtime and a model are there.", _json(Health))}
            for path, name in (("/readyz", "readiness"), ("/health", "health"), ("/ping", "ping"))
        },
        "/metrics": {"get": _open("metrics", "For Prometheus.", {"text/plain": {"schema": {"type": "string"}}})},
    }


def _ollama_paths() -> dict[str, Any]:
    chat = _in_sessions(_generation("ollamaChat", OllamaChatRequest, ChatLine, says=_OLLAMA_ANSWERED))
    posts = {
        "/api/chat": _in_lines(chat, ChatLine),
        "/api/generate": _in_lines(
            _generation("ollamaGenerate", OllamaGenerateRequest, GenerateLine, says=_OLLAMA_ANSWERED), GenerateLine
        ),
        "/api/show": _of_text("ollamaShow", OllamaShowRequest, OllamaShown),
    }
    gets = {
        "/api/tags": _listing("ollamaTags", "The models that can be asked for.", OllamaList),
        "/api/ps": _listing("ollamaPs", "The models that are loaded, as all are.", OllamaRunningList),
        "/api/version": _listing("ollamaVersion", "Whose API this is, and which server.", OllamaVersion),
    }
    return {path: {"post": _as_ollama(operation)} for path, operation in posts.items()} | {
        path: {"get": _as_ollama(operation)} for path, operation in gets.items()
    }


def _in_lines(operation: dict[str, Any], line: type[BaseModel]) -> dict[str, Any]:
    """Its streams are lines of JSON."""
    schema = {"anyOf": [_reference(line), _reference(OllamaError)]}
    operation["responses"]["200"]["content"] = _json(line) | {"application/x-ndjson": {"schema": schema}}
    return operation


def _as_ollama(operation: dict[str, Any]) -> dict[str, Any]:
    """With the errors of that API."""
    for status, response in operation["responses"].items():
        if status != "200":
            response["content"] = _json(OllamaError)
    return operation


def _messages() -> dict[str, Any]:
    return _generation("messages", MessagesRequest, MessageAnswer, *STREAM_EVENTS, says=_MESSAGES_ANSWERED)


def _as_anthropic(operation: dict[str, Any]) -> dict[str, Any]:
    """With the errors of that API, and its way to say a key."""
    for status, response in operation["responses"].items():
        if status != "200":
            response["content"] = _json(MessagesError)
    event = operation["responses"]["200"]["content"].get("text/event-stream")
    if event is not None:
        event["schema"]["anyOf"][-1] = _reference(MessagesError)
    operation["security"] = [{"key": []}, {"apiKey": []}, {}]
    return operation


def _generation(
    name: str, body: type[BaseModel], answer: type[BaseModel], *chunks: type[BaseModel], says: str = _ANSWERED
) -> dict[str, Any]:
    # Of one event's data; OpenAPI 3.1 has no other way to say it, and OpenAI's own document does so, too.
    event = {"anyOf": [*map(_reference, chunks), _reference(ErrorAnswer)]}
    stream = {"text/event-stream": {"schema": event}}
    return {
        "operationId": name,
        "summary": (answer.__doc__ or "").splitlines()[0],
        "requestBody": {"required": True, "content": _json(body)},
        "responses": _responses(_json(answer) | stream, 401, 403, 404, 429, says=says),
        "security": [{"key": []}, {}],
    }


def _in_sessions(operation: dict[str, Any]) -> dict[str, Any]:
    """What goes on in live sessions may be told which, and tells it."""
    named = {"name": "Kakeya-Session-Id", "description": "it has to go on in this session, or in a fork of it"}
    new = {"name": "Kakeya-Session", "description": "it begins a new session"}
    operation["parameters"] = [
        {**named, "in": "header", "schema": {"type": "string", "minLength": 1}},
        {**new, "in": "header", "schema": {"const": "new"}},
    ]
    operation["responses"]["200"]["headers"] = {
        "Kakeya-Session": {
            "description": "`continued`, `forked` or `new`; id; appended; reused; why (docs/http-sessions.md)",
            "schema": {"type": "string"},
        }
    }
    operation["responses"]["409"] = _failure(409)
    return operation


def _of_text(name: str, body: type[BaseModel], answer: type[BaseModel]) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": (answer.__doc__ or "").splitlines()[0],
        "requestBody": {"required": True, "content": _json(body)},
        "responses": _responses(_json(answer), 401, 403, 404, 429),
        "security": [{"key": []}, {}],
    }


def _listing(name: str, summary: str, answer: type[BaseModel], *statuses: int) -> dict[str, Any]:
    responses = _responses(_json(answer), 401, 403, 429, *statuses)
    return {"operationId": name, "summary": summary, "responses": responses, "security": [{"key": []}, {}]}


def _open(name: str, summary: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"operationId": name, "summary": summary, "responses": _responses(content)}


def _responses(content: dict[str, Any], *statuses: int, says: str = "as asked") -> dict[str, Any]:
    return {"200": {"description": says, "content": content}} | {
        str(status): _failure(status) for status in sorted({*_OF_ANY_REQUEST, *statuses})
    }


def _failure(status: int) -> dict[str, Any]:
    failure: dict[str, Any] = {"description": _STATUSES[status], "content": _json(ErrorAnswer)}
    if status in _WITH_RETRY_AFTER:
        schema = {"type": "integer", "minimum": 1}
        failure["headers"] = {"Retry-After": {"description": "seconds", "schema": schema}}
    return failure


def _json(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": _reference(model)}}


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _schemas(max_choices: int) -> dict[str, Any]:
    requests = (
        *(ChatRequest, CompletionRequest, MessagesRequest, CountTokensRequest),
        *(OllamaChatRequest, OllamaGenerateRequest, OllamaShowRequest),
        *(TokenizeRequest, DetokenizeRequest, TemplateRequest),
    )
    answers = (
        *(ChatCompletion, ChatChunk, Completion, MessageAnswer, *STREAM_EVENTS, CountedTokens),
        *(ChatLine, GenerateLine, OllamaList, OllamaRunningList, OllamaShown, OllamaVersion),
        *(Model, ModelList, Tokens, Text, Rendered, Version, Health),
    )
    _, schema = models_json_schema(
        [(model, "validation") for model in (*requests, *answers, ErrorAnswer, MessagesError, OllamaError)],
        ref_template="#/components/schemas/{model}",
    )
    schemas: dict[str, Any] = schema["$defs"]
    schemas[ChatRequest.__name__]["allOf"].append({"properties": {"n": {"maximum": max_choices}}})
    schemas[CompletionRequest.__name__]["allOf"].append({"anyOf": _numbers_of_answers(max_choices)})
    return schemas


def _numbers_of_answers(max_choices: int) -> list[dict[str, Any]]:
    """For each n, what a completion's `best_of` and `prompt` may be beside it."""
    unsaid = {"properties": {**_answers_of_each(1, max_choices), "n": {"enum": [None, 1]}}}
    return [unsaid] + [
        {"properties": {**_answers_of_each(n, max_choices), "n": {"const": n}}, "required": ["n"]}
        for n in range(2, max_choices + 1)
    ]


def _answers_of_each(n: int, max_choices: int) -> dict[str, Any]:
    one_prompt, several = {"items": {"type": "integer"}}, {"maxItems": max_choices // n}  # a text has no items
    return {"best_of": {"enum": [None, n]}, "prompt": {"anyOf": [one_prompt, several]}}
