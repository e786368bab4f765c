"""An error as the API that was asked has it: OpenAI's, below /v1/messages Anthropic's, below /api Ollama's.

Responses have OpenAI's errors, with the fields of that API.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from kakeya_http_shim.problems import CONTEXT_LENGTH_EXCEEDED, ApiError

_MESSAGES: Final = "/v1/messages"
_OLLAMA: Final = "/api/"
_RESPONSES: Final = "/v1/responses"
_CHATS, _ITEMS = "messages", "input"
"""The same in either API; all is worked on as a chat."""
_OF_NONE: Final = ("unknown_parameter", "unsupported_parameter")
"""Codes of fields that are none of Responses."""
_KINDS: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
}
"""Of Anthropic's errors, by their status; all others are `invalid_request_error`. What that API says by 529 is 503
here, as everywhere in HTTP: its clients try again at either."""
_TOO_LONG: Final = "prompt is too long: "
"""What Anthropic's message begins with; Claude Code looks for it, and makes a summary then."""


@dataclass(frozen=True, slots=True)
class ErrorShape:
    """How errors are written.

    Attributes:
        event: the name of a stream's event that has one; "" where events have no names.
        body: the JSON of an error in a request of this id.
        is_line: in a stream it is a line of JSON, as all that such a stream has.
    """

    event: str
    body: Callable[[ApiError, str], dict[str, Any]]
    is_line: bool = False


def is_of_messages(path: str) -> bool:
    """Whether a path is one of Anthropic's API."""
    return path == _MESSAGES or path.startswith(f"{_MESSAGES}/")


def shape_of(scope: Mapping[str, Any]) -> ErrorShape:
    """By the path of a request; of what is none that could be read, OpenAI's."""
    path = scope.get("path", "")
    if path.startswith(_OLLAMA):
        return _OF_OLLAMA
    if path == _RESPONSES or path.startswith(f"{_RESPONSES}/"):
        return _OF_RESPONSES
    return _OF_MESSAGES if is_of_messages(path) else _OF_OPENAI


def body(error: ApiError, scope: Mapping[str, Any]) -> bytes:
    """The JSON of an error in the answer to a request."""
    request_id = scope.get("state", {}).get("request_id", "")
    return json.dumps(shape_of(scope).body(error, request_id), ensure_ascii=False, separators=(",", ":")).encode()


def response(error: ApiError, scope: Mapping[str, Any]) -> Response:
    """The answer to a request."""
    return Response(body(error, scope), error.status, error.header_items(), "application/json")


def _as_anthropic(error: ApiError, request_id: str) -> dict[str, Any]:
    kind = _KINDS.get(error.status, "invalid_request_error")
    message = _TOO_LONG + error.message if error.code == CONTEXT_LENGTH_EXCEEDED else _with_field(error)
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}


def _as_ollama(error: ApiError, _: str) -> dict[str, Any]:
    return {"error": _with_field(error)}


def _with_field(error: ApiError) -> str:
    """The message, which begins with the field that is at fault: there is no other place for it."""
    message = error.message
    return f"{error.param}: {message}" if error.param and not message.startswith(error.param) else message


def as_responses(error: ApiError) -> ApiError:
    """With the name that the field at fault has there."""
    if error.param != _CHATS or error.code in _OF_NONE:
        return error
    message = error.message
    if message.startswith(f"{_CHATS}:"):
        message = _ITEMS + message.removeprefix(_CHATS)
    return ApiError(error.status, message, type=error.type, param=_ITEMS, code=error.code)


def _as_openai(error: ApiError, _: str) -> dict[str, Any]:
    return error.body()


_OF_RESPONSES: Final = ErrorShape("error", lambda error, _: as_responses(error).body())
_OF_MESSAGES: Final = ErrorShape("error", _as_anthropic)
_OF_OLLAMA: Final = ErrorShape("", _as_ollama, is_line=True)
_OF_OPENAI: Final = ErrorShape("", _as_openai)
