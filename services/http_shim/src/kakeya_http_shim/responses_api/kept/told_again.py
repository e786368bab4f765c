"""The stream of a response that has come to its end, told once more: the same events with the same numbers."""

from collections.abc import Iterator
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from kakeya_http_shim.responses_api.answer_items import AnswerItems
from kakeya_http_shim.responses_api.kept.kept_response import KeptResponse
from kakeya_http_shim.responses_api.kept.packing import Unreadable
from kakeya_http_shim.responses_api.response_events import StreamEvent
from kakeya_http_shim.responses_api.response_object import OutputItem, ResponseObject
from kakeya_http_shim.responses_api.responses_writer import begun, cancelled, failed, last_event
from kakeya_http_shim.responses_api.told_stream import Numbers, Told

_ITEM: Final = TypeAdapter[OutputItem](OutputItem)
_UNTOLD: Final = {"completed_at": None, "incomplete_details": None, "error": None, "usage": None}
_FAILED: Final = ("failed", "cancelled")


def told_again(kept: KeptResponse, after: int) -> Iterator[StreamEvent]:
    """The events behind one.

    Args:
        after: its number; -1 for all. Of a stream whose server was lost nobody knows how far it was told: its end comes
            behind this one.

    Raises:
        Unreadable: it was stored by another version of this server.
    """
    try:
        yield from (event for event in _events(kept, after) if event.sequence_number > after)
    except (ValidationError, KeyError) as error:
        raise Unreadable from error


def _events(kept: KeptResponse, after: int) -> Iterator[StreamEvent]:
    numbers, told = Numbers(), kept.told or Told(())
    fields = {name: value for name, value in kept.response.items() if name != "unfinished_call"}
    beginning = fields | _UNTOLD | {"status": "in_progress", "output": []}
    yield from begun(ResponseObject.model_validate(beginning), numbers)
    for event in _of_items(kept, told, numbers):
        if told.error_number is not None and event.sequence_number >= told.error_number:
            break
        yield event
    if kept.status not in _FAILED:
        yield last_event(ResponseObject.model_validate(kept.response), numbers.next)
        return
    numbers.next = max(numbers.next, after + 1) if told.error_number is None else told.error_number
    of_response = kept.response["error"] or cancelled().body()["error"]
    error = told.error or {"type": "server_error", "param": None, **of_response}
    said = {name: error[name] for name in ("code", "message")}
    yield from failed(
        ResponseObject.model_validate(kept.response | {"status": "failed", "error": said}), error, numbers
    )


def _of_items(kept: KeptResponse, told: Told, numbers: Numbers) -> Iterator[StreamEvent]:
    items = AnswerItems("", numbers, {})
    output: list[dict[str, Any]] = [*kept.response["output"], *([told.open_item] if told.open_item else [])]
    for place, each in enumerate(output):
        item = _ITEM.validate_python(each)
        pieces = told.pieces[place] if place < len(told.pieces) else None
        yield from items.again(item, pieces)
