"""What is demanded of an answer."""

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

from tests.fuzz_http.event_stream import EventSchemas, errors_in
from tests.fuzz_http.vocabulary_rules import broken_rules

_DOCUMENTED = [status_code_conformance, content_type_conformance, response_headers_conformance]
POSITIVE = GenerationMode.POSITIVE.value
_RETRY_LATER = (429, 503)
_MAX_SHOWN = 600


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
            yield from self._events.faults(case.path, text)
            if "internal_error" in errors_in(text):
                yield "a failure in the stream that nobody foresaw"
        wants_stream = bool(isinstance(case.body, dict) and case.body.get("stream"))
        if response.status_code == 200 and is_stream(response) != wants_stream:
            yield f"the answer is {response.headers.get('content-type')}, and stream {wants_stream}"

    def _refusal_faults(self, case: Case, response: Response) -> Iterator[str]:
        """A valid request is refused for one of the written rules or not at all."""
        if mode_of(case) != POSITIVE:
            return
        rules = broken_rules(case.body, self._vocab_size)
        if response.status_code == 200 and rules:
            yield f"accepted, although not: {rules[0].says}"
        elif response.status_code == 400:
            param = str(response.json()["error"]["param"])
            if not any(param.startswith(rule.param) for rule in rules):
                yield "refused, and no rule says so"
        elif response.status_code not in (200, 404, *_RETRY_LATER):
            yield "a valid request must not get this status"


def mode_of(case: Case) -> str:
    """Whether its document allows it: "positive" or "negative"."""
    return case.meta.generation.mode.value if case.meta is not None else ""


def is_stream(response: Response) -> bool:
    return (response.headers.get("content-type") or [""])[0].startswith("text/event-stream")


def described(case: Case, response: Response) -> str:
    """What is needed to see it again."""
    answer = (response.content or b"").decode(errors="replace")[:_MAX_SHOWN]
    return f"{response.status_code} {answer} to {case.method} {case.path} ({mode_of(case)}) {case!r}"[: 3 * _MAX_SHOWN]


def _is_documented(case: Case) -> bool:
    return bool(case.method.lower() == case.operation.method.lower())


def _failures(case: Case, response: Response, checks: list[Any]) -> Iterator[str]:
    try:
        case.validate_response(response, checks=checks)
    except FailureGroup as group:
        for failure in group.exceptions:
            yield f"{failure.title}: {failure.message}"[:_MAX_SHOWN]
