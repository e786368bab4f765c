"""The events of a stream, held against the schema that the document gives them."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs

DONE = "[DONE]"


class EventSchemas:
    """Args:
    document: the OpenAPI document, in which `text/event-stream` has the schema of one event.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self._components = document["components"]
        self._error = self._validator({"$ref": "#/components/schemas/ErrorAnswer"})
        self._chunks = {
            path: self._validator(_event_schema(item["post"]))
            for path, item in document["paths"].items()
            if "post" in item
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

    def _faults_of_event(self, path: str, block: str, *, is_last: bool) -> Iterator[str]:
        name, _, data = block.partition(": ")
        if name != "data" or "\n" in data:
            yield f"not one line of data: {block[:80]!r}"
            return
        if data == DONE:
            if not is_last:
                yield f"{DONE} before the end"
            return
        event = json.loads(data)
        if self._error.is_valid(event):
            if not is_last:
                yield "an error event before the end"
            return
        if is_last:
            yield f"the last event is neither {DONE} nor an error"
        for fault in self._chunks[path].iter_errors(event):
            yield f"an event that its schema forbids: {fault.message} at {fault.instance_path}"

    def _validator(self, schema: dict[str, Any]) -> Any:
        return jsonschema_rs.Draft202012Validator({**schema, "components": self._components})


def _event_schema(operation: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = operation["responses"]["200"]["content"]["text/event-stream"]["schema"]
    return schema


def errors_in(text: str) -> list[str]:
    """The codes of a stream's error events."""
    events = [block.removeprefix("data: ") for block in text.split("\n\n") if block.startswith('data: {"error"')]
    return [str(json.loads(event)["error"]["code"]) for event in events]
