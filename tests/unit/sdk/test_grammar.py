"""What an answer can be held to, as it is sent."""

from typing import Any

import pytest

from kakeya import Grammar, InvalidField, Reasoning
from kakeya._transport._requests import generate_request
from kakeya_stubs.v1 import runtime_pb2


@pytest.mark.parametrize(
    ("grammar", "wire"),
    [
        (Grammar.json_schema({"const": "\u00e9"}), runtime_pb2.Grammar(json_schema='{"const": "\u00e9"}')),
        (Grammar.json_schema(True), runtime_pb2.Grammar(json_schema="true")),
        (Grammar.json_schema('{"a": 1 }'), runtime_pb2.Grammar(json_schema='{"a": 1 }')),
        (Grammar.json_object(), runtime_pb2.Grammar(json_schema='{"type": "object"}')),
        (Grammar.regex("a+"), runtime_pb2.Grammar(regex="a+")),
        (Grammar.lark("start: /a/"), runtime_pb2.Grammar(lark="start: /a/")),
        (Grammar.choice(iter("ab")), runtime_pb2.Grammar(choice=runtime_pb2.Grammar.Choice(texts=["a", "b"]))),
    ],
)
def test_each_kind_is_a_field(grammar: Grammar, wire: runtime_pb2.Grammar) -> None:
    assert grammar.wire == wire
    assert generate_request("s", grammar=grammar).grammar == wire


def test_how_a_model_thinks() -> None:
    reasoning = Reasoning([5, 6], max_tokens=7, begin_token_ids=(4,))
    wire = runtime_pb2.Reasoning(end_token_ids=[5, 6], max_tokens=7, begin_token_ids=[4])
    assert generate_request("s", reasoning=reasoning).reasoning == wire
    for wrong in ([-1], ["a"], 5):
        given: Any = wrong
        with pytest.raises(InvalidField, match="reasoning: "):
            generate_request("s", reasoning=Reasoning(given))


def test_what_is_none_is_refused() -> None:
    schema: Any = {"type": "object"}
    with pytest.raises(InvalidField, match=r"grammar: make it by kakeya\.Grammar"):
        generate_request("s", grammar=schema)
    assert not generate_request("s", grammar=None).HasField("grammar")
