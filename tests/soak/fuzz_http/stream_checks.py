"""What is demanded of the streams of an API: events, or lines of JSON."""

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
from schemathesis import Response

MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"
"""The APIs whose events have names, which are their types."""
DONE = "[DONE]"
UNFORESEEN = frozenset({"internal_error", "api_error"})
"""What OpenAI's errors have as their code then, and Anthropic's as their type."""
_EVENT = re.compile(r"(?:event: (?P<name>[\w.]+)\n)?data: (?P<data>[^\n]*)")
_LAST = ("message_stop", "response.failed")
_STREAM, _LINES = "text/event-stream", "application/x-ndjson"
_ERRORS = ({"$ref": "#/components/schemas/ErrorAnswer"}, {"$ref": "#/components/schemas/MessagesError"})
_UNFORESEEN_LINE = "an unforeseen error"


class EventSchemas:
    """Args:
    document: the OpenAPI document, in which `text/event-stream` has the schema of one event.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self._components = document["components"]
        self._error = self._validator({"anyOf": list(_ERRORS)})
        self._chunks = {
            path: self._validator(content[kind]["schema"])
            for path, item in document["paths"].items()
            if "post" in item
            for content in [item["post"]["responses"]["200"]["content"]]
            for kind in (_STREAM, _LINES)
            if kind in content
        }

    def faults(self, path: str, text: str) -> Iterator[str]:
        """What is wrong with a whole stream of an operation."""
        *blocks, rest = text.split("\n\n")
        if rest:
            yield f"the stream ends within an event: {rest[:80]!r}"
        said = [block for block in blocks if not block.startswith(":")]
        if not said:
            yield "a stream without events"
        for number, block in enumerate(said):
            yield from self._faults_of_event(path, block, is_last=number == len(said) - 1)

    def line_faults(self, path: str, text: str) -> Iterator[str]:
        """What is wrong with a whole stream of lines."""
        *lines, rest = text.split("\n")
        if rest or not lines:
            yield f"the stream ends within a line: {rest[:80]!r}"
        for number, line in enumerate(lines):
            said = json.loads(line)
            for fault in self._chunks[path].iter_errors(said):
                yield f"a line that its schema forbids: {fault.message} at {fault.instance_path}"
            if ("error" in said or said["done"]) != (number == len(lines) - 1):
                yield f"the last line ends no stream, or one before it does: {line[:80]}"
            if str(said.get("error", "")).startswith(_UNFORESEEN_LINE):
                yield "a failure in the stream that nobody foresaw"

    def _faults_of_event(self, path: str, block: str, *, is_last: bool) -> Iterator[str]:
        match = _EVENT.fullmatch(block)
        if match is None:
            yield f"not one line of data: {block[:80]!r}"
            return
        name, data = match["name"], match["data"]
        event = None if data == DONE else json.loads(data)
        if name != (event["type"] if event is not None and path in (MESSAGES, RESPONSES) else None):
            yield f"an event of the name {name} has the data {data[:80]}"
        is_end = data == DONE or name in _LAST or (path != RESPONSES and self._error.is_valid(event))
        if is_end != is_last:
            yield f"the last event ends no stream: {data[:80]}" if is_last else f"{data[:80]} before the end"
        if event is not None:
            for fault in self._chunks[path].iter_errors(event):
                yield f"an event that its schema forbids: {fault.message} at {fault.instance_path}"

    def _validator(self, schema: dict[str, Any]) -> Any:
        return jsonschema_rs.Draft202012Validator({**schema, "components": self._components})


def errors_in(text: str) -> list[str]:
    """The codes of a stream's error events, or their types where they have none."""
    found = [_EVENT.fullmatch(block) for block in text.split("\n\n")]
    told = [json.loads(match["data"]) for match in found if match and match["data"] != DONE]
    errors = [event["error"] for event in told if event.get("error")]
    return [str(error.get("code", error["type"])) for error in errors]


def is_stream(response: Response) -> bool:
    return (response.headers.get("content-type") or [""])[0].startswith((_STREAM, _LINES))
