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
from kakeya_http_shim.responses_api.compact_request import CompactedResponse, CompactRequest
from kakeya_http_shim.responses_api.conversation_bodies import (
    AddItems,
    ConversationItem,
    ConversationObject,
    CreateConversation,
    DeletedConversation,
    UpdateConversation,
)
from kakeya_http_shim.responses_api.response_events import RESPONSE_EVENTS
from kakeya_http_shim.responses_api.response_object import ResponseObject
from kakeya_http_shim.responses_api.responses_request import ResponsesRequest
from kakeya_http_shim.routes.listing_routes import Health, Model, ModelList, Version
from kakeya_http_shim.routes.messages_routes import CountedTokens
from kakeya_http_shim.routes.openapi.operations import (
    ErrorAnswer,
    as_json,
    generation,
    in_sessions,
    listing,
    of_text,
    open_to_all,
    reference,
)
from kakeya_http_shim.routes.responses.item_pages import MAX_ITEMS, ItemList
from kakeya_http_shim.routes.responses.kept_routes import DeletedResponse
from kakeya_http_shim.routes.text_routes import Rendered, Text, Tokens

_MESSAGES_ANSWERED = "as asked; a stream is server-sent events, each with the name that its data have as `type`"
_OLLAMA_ANSWERED = "as asked; a stream is lines of JSON, such an object each"
_RESPONSES_ANSWERED = f"{_MESSAGES_ANSWERED}, and `[DONE]` in the end"


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
            "summary": "OpenAI's APIs, Anthropic's Messages and Ollama's API over sessions with bounded KV",
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
        "/v1/chat/completions": {"post": in_sessions(generation("chat", ChatRequest, ChatCompletion, ChatChunk))},
        "/v1/completions": {"post": generation("complete", CompletionRequest, Completion, Completion)},
        "/v1/messages": {"post": _as_anthropic(in_sessions(_messages()))},
        "/v1/messages/count_tokens": {"post": _as_anthropic(of_text("countTokens", CountTokensRequest, CountedTokens))},
        **_responses_paths(),
        **_conversations_paths(),
        "/v1/models": {"get": listing("models", "The models that are served now.", ModelList)},
        "/v1/models/{id}": {"get": listing("model", "One model.", Model, 404) | {"parameters": [_named("id")]}},
        **_ollama_paths(),
        "/tokenize": {"post": of_text("tokenize", TokenizeRequest, Tokens)},
        "/detokenize": {"post": of_text("detokenize", DetokenizeRequest, Text)},
        "/apply-template": {"post": of_text("applyTemplate", TemplateRequest, Rendered)},
        "/version": {"get": listing("version", "Which server this is.", Version)},
        "/": {"get": open_to_all("root", "Whether this process is alive.", as_json(Health))},
        "/healthz": {"get": open_to_all("alive", "Whether this process is alive.", as_json(Health))},
        **{
            path: {"get": open_to_all(name, "Whether the runtime and a model are there.", as_json(Health))}
            for path, name in (("/readyz", "readiness"), ("/health", "health"), ("/ping", "ping"))
        },
        "/metrics": {"get": open_to_all("metrics", "For Prometheus.", {"text/plain": {"schema": {"type": "string"}}})},
    }


def _ollama_paths() -> dict[str, Any]:
    chat = in_sessions(generation("ollamaChat", OllamaChatRequest, ChatLine, says=_OLLAMA_ANSWERED))
    posts = {
        "/api/chat": _in_lines(chat, ChatLine),
        "/api/generate": _in_lines(
            generation("ollamaGenerate", OllamaGenerateRequest, GenerateLine, says=_OLLAMA_ANSWERED), GenerateLine
        ),
        "/api/show": of_text("ollamaShow", OllamaShowRequest, OllamaShown),
    }
    gets = {
        "/api/tags": listing("ollamaTags", "The models that can be asked for.", OllamaList),
        "/api/ps": listing("ollamaPs", "The models that are loaded, as all are.", OllamaRunningList),
        "/api/version": listing("ollamaVersion", "Whose API this is, and which server.", OllamaVersion),
    }
    return {path: {"post": _as_ollama(operation)} for path, operation in posts.items()} | {
        path: {"get": _as_ollama(operation)} for path, operation in gets.items()
    }


def _in_lines(operation: dict[str, Any], line: type[BaseModel]) -> dict[str, Any]:
    """Its streams are lines of JSON."""
    schema = {"anyOf": [reference(line), reference(OllamaError)]}
    operation["responses"]["200"]["content"] = as_json(line) | {"application/x-ndjson": {"schema": schema}}
    return operation


def _as_ollama(operation: dict[str, Any]) -> dict[str, Any]:
    """With the errors of that API."""
    for status, response in operation["responses"].items():
        if status != "200":
            response["content"] = as_json(OllamaError)
    return operation


def _messages() -> dict[str, Any]:
    return generation("messages", MessagesRequest, MessageAnswer, *STREAM_EVENTS, says=_MESSAGES_ANSWERED)


def _responses_paths() -> dict[str, Any]:
    named = {"parameters": [_named("id")]}
    look = listing("response", "A response that is stored.", ResponseObject, 404)
    items = listing("responseItems", "The items before its answer.", ItemList, 404)
    return {
        "/v1/responses": {"post": _create_response()},
        "/v1/responses/compact": {"post": of_text("compact", CompactRequest, CompactedResponse)},
        "/v1/responses/{id}": {
            "get": look | {"parameters": [*named["parameters"], *_stream_of_kept()]},
            "delete": listing("deleteResponse", "Forgets a response.", DeletedResponse, 404) | named,
        },
        "/v1/responses/{id}/input_items": {"get": items | {"parameters": [*named["parameters"], *_pages()]}},
        "/v1/responses/{id}/cancel": {
            "post": listing("cancelResponse", "Ends one that is being answered.", ResponseObject, 404) | named
        },
    }


def _conversations_paths() -> dict[str, Any]:
    named = {"parameters": [_named("id")]}
    item = {"parameters": [_named("id"), _named("item_id")]}
    items = listing("conversationItems", "The items of a conversation.", ItemList, 404)
    without = listing("deleteConversationItem", "Forgets an item of a conversation.", ConversationObject, 404)
    return {
        "/v1/conversations": {"post": of_text("createConversation", CreateConversation, ConversationObject)},
        "/v1/conversations/{id}": {
            "get": listing("conversation", "A conversation that is stored.", ConversationObject, 404) | named,
            "post": of_text("updateConversation", UpdateConversation, ConversationObject) | named,
            "delete": listing("deleteConversation", "Forgets a conversation.", DeletedConversation, 404) | named,
        },
        "/v1/conversations/{id}/items": {
            "get": items | {"parameters": [*named["parameters"], *_pages()]},
            "post": of_text("addConversationItems", AddItems, ItemList) | named,
        },
        "/v1/conversations/{id}/items/{item_id}": {
            "get": listing("conversationItem", "An item of a conversation.", ConversationItem, 404) | item,
            "delete": without | item,
        },
    }


def _named(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _pages() -> list[dict[str, Any]]:
    return [
        _query("limit", {"type": "integer", "minimum": 1, "maximum": MAX_ITEMS}),
        _query("order", {"enum": ["asc", "desc"]}),
        _query("after", {"type": "string"}),
    ]


def _query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema}


def _stream_of_kept() -> list[dict[str, Any]]:
    flag = {"enum": ["true", "false"]}
    return [
        _query("stream", flag),
        _query("starting_after", {"type": "integer", "minimum": 0, "maximum": 999_999_999}),
        _query("include_obfuscation", {"enum": ["false"]}),
    ]


def _create_response() -> dict[str, Any]:
    operation = in_sessions(
        generation("createResponse", ResponsesRequest, ResponseObject, *RESPONSE_EVENTS, says=_RESPONSES_ANSWERED)
    )
    operation["responses"]["200"]["content"]["text/event-stream"]["schema"]["anyOf"].pop()  # its errors are events
    return operation


def _as_anthropic(operation: dict[str, Any]) -> dict[str, Any]:
    """With the errors of that API, and its way to say a key."""
    for status, response in operation["responses"].items():
        if status != "200":
            response["content"] = as_json(MessagesError)
    event = operation["responses"]["200"]["content"].get("text/event-stream")
    if event is not None:
        event["schema"]["anyOf"][-1] = reference(MessagesError)
    operation["security"] = [{"key": []}, {"apiKey": []}, {}]
    return operation


def _schemas(max_choices: int) -> dict[str, Any]:
    requests: tuple[type[BaseModel], ...] = (
        *(ChatRequest, CompletionRequest, MessagesRequest, CountTokensRequest),
        *(OllamaChatRequest, OllamaGenerateRequest, OllamaShowRequest, ResponsesRequest),
        *(CreateConversation, UpdateConversation, AddItems, CompactRequest),
        *(TokenizeRequest, DetokenizeRequest, TemplateRequest),
    )
    answers: list[type[BaseModel]] = [
        *(ChatCompletion, ChatChunk, Completion, MessageAnswer, CountedTokens),
        *(ResponseObject, DeletedResponse, ItemList, CompactedResponse),
        *(ConversationObject, DeletedConversation, ConversationItem),
        *STREAM_EVENTS,
        *RESPONSE_EVENTS,
        *(ChatLine, GenerateLine, OllamaList, OllamaRunningList, OllamaShown, OllamaVersion),
        *(Model, ModelList, Tokens, Text, Rendered, Version, Health),
    ]
    models: list[type[BaseModel]] = [*requests, *answers, ErrorAnswer, MessagesError, OllamaError]
    _, schema = models_json_schema(
        [(model, "validation") for model in models],
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
