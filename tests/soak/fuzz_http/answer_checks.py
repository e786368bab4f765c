"""What is demanded of an answer, and of the events of a stream."""

import json
from collections.abc import Iterator
from typing import Any

from schemathesis import Case, GenerationMode, Response
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from tests.soak.fuzz_http.answerable import OLLAMA, items, unanswerable
from tests.soak.fuzz_http.stream_checks import UNFORESEEN, EventSchemas, errors_in, is_stream

_DOCUMENTED = [status_code_conformance, content_type_conformance, response_headers_conformance]
POSITIVE = GenerationMode.POSITIVE.value
_RETRY_LATER = (429, 503)
_MAX_SHOWN = 600
_TOO_LONG = "prompt is too long"
"""So begins Anthropic's message of it."""
_SAYS = {"/api/chat": "messages", "/api/generate": "prompt"}
DEFAULT_TOKENS = 4
"""Of a chat's answer, where a request says nothing of it: what the shim is told."""
_DEFAULT_COMPLETION_TOKENS = 16
WINDOW = 1_000
"""Tokens that a session keeps beside its sink. There is room for what is drawn as system messages, but for a few."""
_TEMPLATE_TOKENS = 400
"""At most, of what kakeya-nano's template writes itself: a sentence of the tools, and marks of each message."""


class AnswerChecks:
    """Args:
    vocab_size: tokens that the model knows.
    """

    def __init__(self, document: dict[str, Any], vocab_size: int) -> None:
        self._events = EventSchemas(document)
        self._vocab_size = vocab_size

    def faults(self, case: Case, response: Response) -> Iterator[str]:
        """What is wrong with the answer to a case."""
        yield from self._status_faults(response)
        if _is_documented(case):
            yield from _failures(case, response, [*_DOCUMENTED, negative_data_rejection])
            yield from self._content_faults(case, response)
            yield from self._refusal_faults(case, response)
        else:
            yield from _failures(case, response, [unsupported_method])

    def _status_faults(self, response: Response) -> Iterator[str]:
        if response.status_code >= 500 and response.status_code != 503:
            yield "a failure that nobody foresaw"
        if response.status_code in _RETRY_LATER:
            (seconds,) = response.headers.get("retry-after") or ["none"]
            if not seconds.isdigit() or int(seconds) < 1:
                yield f"Retry-After: {seconds}"
        if not response.headers.get("x-request-id"):
            yield "no x-request-id"

    def _content_faults(self, case: Case, response: Response) -> Iterator[str]:
        if not is_stream(response):
            yield from _failures(case, response, [response_schema_conformance])
        else:
            text = (response.content or b"").decode()
            check = self._events.line_faults if case.path.startswith(OLLAMA) else self._events.faults
            yield from check(case.path, text)
            if UNFORESEEN.intersection(errors_in(text)):
                yield "a failure in the stream that nobody foresaw"
        wants_stream = isinstance(case.body, dict) and _wants_stream(case)
        if response.status_code == 200 and is_stream(response) != wants_stream:
            yield f"the answer is {response.headers.get('content-type')}, and stream {wants_stream}"

    def _refusal_faults(self, case: Case, response: Response) -> Iterator[str]:
        """A valid request is refused for one of the written rules or not at all."""
        if mode_of(case) != POSITIVE:
            return
        rules = [*broken_rules(case.body, self._vocab_size), *_named_session(case), *unanswerable(case)]
        rules = [] if _asks_nothing(case) else rules
        if response.status_code == 200 and rules:
            yield f"accepted, although not: {rules[0][1]}"
        elif response.status_code == 400:
            error = response.json()["error"]
            said = error if isinstance(error, str) else error["param"] if "param" in error else error["message"]
            param = str(said)  # the others begin with it
            named = [*(name for name, _ in rules), *_may_be_refused(case.body, error)]
            if not any(param.startswith(name) for name in named):
                yield "refused, and no rule says so"
        elif response.status_code not in (200, 404, *_RETRY_LATER):
            yield "a valid request must not get this status"


def _may_be_refused(body: Any, error: dict[str, Any] | str) -> list[str]:
    """Fields of which the document does not say all: forms, the schemas of tools, and how long a text may be."""
    if not isinstance(body, dict):
        return []
    return [
        *_forms(body),
        *(["tools"] if _holds_calls(body) else []),
        *(["messages", "prompt", "input", _TOO_LONG] if _says_too_long(error) and may_not_fit(body) else []),
    ]


def _says_too_long(error: dict[str, Any] | str) -> bool:
    if isinstance(error, str):
        return "tokens" in error
    return error.get("code") == "context_length_exceeded" or str(error["message"]).startswith(_TOO_LONG)


def may_not_fit(body: dict[str, Any]) -> bool:
    """Whether what a session must keep may be more than it has room for: its head, and all of it where nothing may be
    forgotten. A letter as it is written in JSON is a token at most.
    """
    own = (body.get("kakeya") or {}).get("on_overflow")
    is_kept = False in (body.get("truncate"), body.get("shift")) or body.get("truncation") == "disabled"
    if own == "refuse" or (own is None and is_kept):
        kept: Any = body
    else:
        system = [turn for turn in body.get("messages") or () if turn.get("role") in ("system", "developer")]
        system += [item for item in items(body) if item.get("role") in ("system", "developer")]
        kept = [body.get("tools"), body.get("system"), body.get("instructions"), system]
    return len(json.dumps(kept)) + _TEMPLATE_TOKENS >= WINDOW


def _holds_calls(body: dict[str, Any]) -> bool:
    """Whether a grammar holds its calls: those that are forced, and those of strict tools."""
    choice, tools = body.get("tool_choice"), [function for _, function in _functions(body)]
    if choice == "required" or (isinstance(choice, dict) and choice.get("type") in ("function", "any", "tool")):
        return bool(tools)
    is_free = choice in (None, "auto") or (isinstance(choice, dict) and choice.get("type") == "auto")
    return is_free and any(function.get("strict") for function in tools)


def _functions(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Those that are offered, with their full names; a search has none."""
    for tool in body.get("tools") or ():
        if tool.get("type") == "namespace":
            yield from ((f"{tool['name']}__{inner['name']}", inner) for inner in tool["tools"])
        else:
            function = tool.get("function") or tool
            if function.get("name") is not None:
                yield function["name"], function


def _wants_stream(case: Case) -> bool:
    body: Any = case.body
    if not case.path.startswith(OLLAMA):
        return bool(body.get("stream"))
    return case.path in _SAYS and not _asks_nothing(case) and body.get("stream") is not False


def _asks_nothing(case: Case) -> bool:
    """To Ollama's API it says no more than that a model is to be loaded."""
    return case.path in _SAYS and isinstance(case.body, dict) and not case.body.get(_SAYS[case.path])


def _forms(body: Any) -> list[str]:
    """The fields that hold an answer to a form. Which forms can be held to, the library in the worker says."""
    if not isinstance(body, dict):
        return []
    own, config = body.get("kakeya") or {}, body.get("output_config") or {}
    found = [f"kakeya.{name}" for name in ("regex", "choice", "grammar") if own.get(name) is not None]
    found += ["response_format"] if (body.get("response_format") or {}).get("type") == "json_schema" else []
    text = body.get("text") or {}
    found += ["text.format"] if (text.get("format") or {}).get("type") == "json_schema" else []
    found += ["output_config.format"] if config.get("format") else []
    found += ["format"] if isinstance(body.get("format"), dict) else []
    return found


def _named_session(case: Case) -> list[tuple[str, str]]:
    """As in `broken_rules`: there is no session of a name that is drawn."""
    is_named = any(name.lower() == "kakeya-session-id" for name in case.headers or ())
    return [("kakeya-session-id", "a session that is named is there")] if is_named else []


def mode_of(case: Case) -> str:
    """Whether its document allows it: "positive" or "negative"."""
    return case.meta.generation.mode.value if case.meta is not None else ""


def described(case: Case, response: Response) -> str:
    """What is needed to see it again."""
    answer = (response.content or b"").decode(errors="replace")[:_MAX_SHOWN]
    return f"{response.status_code} {answer} to {case.method} {case.path} ({mode_of(case)}) {case!r}"[: 3 * _MAX_SHOWN]


def broken_rules(body: Any, vocab_size: int) -> list[tuple[str, str]]:
    """What a body must obey beyond its schema, which knows no vocabulary. A body that its schema allows is refused with
    400 where it breaks one of these rules, and not otherwise.

    Returns:
        What the error names as `param`, or what that begins with, and what the rule says.
    """
    if not isinstance(body, dict):
        return []
    broken = [
        (name, "tokens are of the model")
        for name, token_ids in _named_tokens(body)
        if any(token_id >= vocab_size for token_id in token_ids)
    ]
    if body.get("continue_final_message") and not _has_text((body.get("messages") or [{}])[-1]):
        broken.append(("messages", "there is a text to go on with"))
    if _lacks_called_tool(body):
        broken.append(("tool_choice", "a tool that has to be called is offered"))
    if body.get("top_logprobs") and not body.get("logprobs"):
        broken.append(("top_logprobs", "it is only with logprobs"))
    formats = (body.get("response_format"), (body.get("text") or {}).get("format"))
    is_json = any((each or {}).get("type") == "json_object" for each in formats)
    if body.get("ignore_eos") and (is_json or _forms(body) or _holds_calls(body)):  # Messages know none
        broken.append(("ignore_eos", "what has a form has an end"))
    if (body.get("min_tokens") or 0) > _longest_answer(body):
        broken.append(("min_tokens", "an answer may be as long as it must be"))
    return broken


def _lacks_called_tool(body: dict[str, Any]) -> bool:
    choice = body.get("tool_choice")
    kind = choice.get("type") if isinstance(choice, dict) else choice
    offered = [name for name, _ in _functions(body)]
    if isinstance(choice, dict) and kind in ("tool", "function"):
        return choice.get("function", choice).get("name") not in offered
    return kind in ("any", "required") and not offered


def _named_tokens(body: dict[str, Any]) -> Iterator[tuple[str, list[float]]]:
    yield "logit_bias", [int(name) for name in body.get("logit_bias") or ()]
    for name in ("prompt", "tokens", "stop_token_ids"):
        yield name, _token_ids(body.get(name))


def _has_text(message: dict[str, Any]) -> bool:
    """Parts, or a text, be it empty. A refusal is one where there is nothing else."""
    content = message.get("content")
    said = content or message.get("refusal") or content
    return isinstance(said, str) or bool(said)


def _longest_answer(body: dict[str, Any]) -> float:
    given = [body[name] for name in ("max_tokens", "max_completion_tokens") if body.get(name) is not None]
    default = DEFAULT_TOKENS if "messages" in body else _DEFAULT_COMPLETION_TOKENS
    return min(given, default=default)


def _token_ids(prompt: Any) -> list[float]:
    """Of all prompts of a body: texts have none."""
    if isinstance(prompt, list):
        return [token_id for part in prompt for token_id in _token_ids(part)]
    return [prompt] if isinstance(prompt, int | float) else []


def _is_documented(case: Case) -> bool:
    return bool(case.method.lower() == case.operation.method.lower())


def _failures(case: Case, response: Response, checks: list[Any]) -> Iterator[str]:
    try:
        case.validate_response(response, checks=checks)
    except FailureGroup as group:
        for failure in group.exceptions:
            yield f"{failure.title}: {failure.message}"[:_MAX_SHOWN]
