"""Operations of the OpenAPI document, and the errors that each may answer with."""

from typing import Any

from pydantic import BaseModel

_STATUSES = {
    400: "a field is at fault, which `param` names; or the request itself",
    401: "no key, or one that is not good",
    403: "the key is good, and not for this",
    404: "there is nothing of that name: no model, session, response, conversation or item",
    409: "the messages do not lead to a place of the session that is named",
    408: "the body did not come in time",
    413: "the body is too large",
    415: "the body is not said to be JSON in UTF-8, or is compressed in a way that is not served",
    429: "too many requests, or a quota is used up; Retry-After says when to come again",
    500: "unforeseen",
    503: "not now; Retry-After says when to come again",
}
_ANSWERED = "as asked; a stream is server-sent events whose data are such objects each, and `[DONE]` in the end"
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


def generation(
    name: str, body: type[BaseModel], answer: type[BaseModel], *chunks: type[BaseModel], says: str = _ANSWERED
) -> dict[str, Any]:
    """One that generates.

    Args:
        chunks: what an event of its stream is one of.
        says: how it answers.
    """
    # Of one event's data; OpenAPI 3.1 has no other way to say it, and OpenAI's own document does so, too.
    event = {"anyOf": [*map(reference, chunks), reference(ErrorAnswer)]}
    stream = {"text/event-stream": {"schema": event}}
    return {
        "operationId": name,
        "summary": (answer.__doc__ or "").splitlines()[0],
        "requestBody": {"required": True, "content": as_json(body)},
        "responses": _responses(as_json(answer) | stream, 401, 403, 404, 429, says=says),
        "security": [{"key": []}, {}],
    }


def in_sessions(operation: dict[str, Any]) -> dict[str, Any]:
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


def of_text(name: str, body: type[BaseModel], answer: type[BaseModel]) -> dict[str, Any]:
    """One between text and tokens."""
    return {
        "operationId": name,
        "summary": (answer.__doc__ or "").splitlines()[0],
        "requestBody": {"required": True, "content": as_json(body)},
        "responses": _responses(as_json(answer), 401, 403, 404, 429),
        "security": [{"key": []}, {}],
    }


def listing(name: str, summary: str, answer: type[BaseModel], *statuses: int) -> dict[str, Any]:
    """One that needs a key where the router asks for keys, and has no body."""
    responses = _responses(as_json(answer), 401, 403, 429, *statuses)
    return {"operationId": name, "summary": summary, "responses": responses, "security": [{"key": []}, {}]}


def open_to_all(name: str, summary: str, content: dict[str, Any]) -> dict[str, Any]:
    """One that needs no key."""
    return {"operationId": name, "summary": summary, "responses": _responses(content)}


def _responses(content: dict[str, Any], *statuses: int, says: str = "as asked") -> dict[str, Any]:
    return {"200": {"description": says, "content": content}} | {
        str(status): _failure(status) for status in sorted({*_OF_ANY_REQUEST, *statuses})
    }


def _failure(status: int) -> dict[str, Any]:
    failure: dict[str, Any] = {"description": _STATUSES[status], "content": as_json(ErrorAnswer)}
    if status in _WITH_RETRY_AFTER:
        schema = {"type": "integer", "minimum": 1}
        failure["headers"] = {"Retry-After": {"description": "seconds", "schema": schema}}
    return failure


def as_json(model: type[BaseModel]) -> dict[str, Any]:
    """The content of an answer or a body."""
    return {"application/json": {"schema": reference(model)}}


def reference(model: type[BaseModel]) -> dict[str, str]:
    """To the schema of a model."""
    return {"$ref": f"#/components/schemas/{model.__name__}"}
