"""Calls by their numbers: equal conversations have equal ones, whatever their ids."""

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

from kakeya_http_shim.conversations.call_numbers import call_number, numbered
from kakeya_http_shim.requests.messages import Message

READER: TypeAdapter[list[Message]] = TypeAdapter(list[Message])


def calling(*ids: str) -> dict[str, Any]:
    function = {"name": "add", "arguments": "{}"}
    return {"role": "assistant", "tool_calls": [{"id": id_, "type": "function", "function": function} for id_ in ids]}


def result(id_: str, content: str = "5") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": content}


def ids(messages: Sequence[Any]) -> list[str]:
    found: list[str] = []
    for message in numbered(READER.validate_python(messages)):
        found += [call.id for call in getattr(message, "tool_calls", None) or ()]
        found += [message.tool_call_id] if message.role == "tool" else []
    return found


def test_ids_do_not_count() -> None:
    said = [{"role": "user", "content": "Add"}, calling("a", "b"), result("b"), result("a"), calling("c"), result("c")]
    other = [{"role": "user", "content": "Add"}, calling("1", "2"), result("2"), result("1"), calling("1"), result("1")]
    assert ids(said) == ids(other) == [call_number(number) for number in (0, 1, 1, 0, 2, 2)]
    assert call_number(7) == "000000007"


def test_the_order_of_results_does() -> None:
    assert ids([calling("a", "b"), result("a"), result("b")]) != ids([calling("a", "b"), result("b"), result("a")])


def test_what_answers_no_call_is_none_of_them() -> None:
    assert ids([calling("a"), result("000000000")]) == [call_number(0), "?000000000"]
