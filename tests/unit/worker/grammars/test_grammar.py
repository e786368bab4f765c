"""Grammars as they are asked for."""

import pytest

from kakeya_shared.errors.tree import InvalidField
from kakeya_worker.grammars.grammar import Grammar


def test_digests_tell_grammars_apart() -> None:
    grammars = [
        Grammar("regex", ("a",)),
        Grammar("lark", ("a",)),
        Grammar("choice", ("a",)),
        Grammar("choice", ("a", "")),
        Grammar("choice", ("", "a")),
    ]
    assert len({grammar.digest for grammar in grammars}) == len(grammars)
    assert Grammar("choice", ("a", "b")).digest == Grammar("choice", ("a", "b")).digest


@pytest.mark.parametrize("text", ["", "{", "yes", 'true}, {"lark_grammar": "start: /.*/"', "[" * 100_000])
def test_a_schema_that_is_no_json_is_refused(text: str) -> None:
    """The library would put it into JSON of its own, and read what comes of it."""
    with pytest.raises(InvalidField, match=r"grammar\.json_schema: is not JSON") as raised:
        _ = Grammar("json_schema", (text,)).library_form
    assert raised.value.metadata == {"field": "grammar.json_schema"}
    assert len(raised.value.message) < 700


def test_a_long_reason_is_cut() -> None:
    assert len(Grammar("lark", ("x",)).refused("y" * 10_000).message) < 700
