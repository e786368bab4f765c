"""Grammars and what they allow, token by token, without a model."""

import asyncio
import gc
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from llguidance import LLParserLimits

from kakeya_shared.errors.tree import InvalidField
from kakeya_worker.conformance.tools.tokenizer_files import NUM_TOKENS, WORDS, write_tokenizer
from kakeya_worker.grammars import grammars as module
from kakeya_worker.grammars.constraint import Constraint
from kakeya_worker.grammars.grammar import Grammar
from kakeya_worker.grammars.grammars import Grammars

VOCAB_SIZE = 300  # of the model: some ids have no text
END, START = NUM_TOKENS - 2, NUM_TOKENS - 1
TIMEOUT = 60.0


@pytest.fixture
def grammars(tmp_path: Path) -> Iterator[Grammars]:
    grammars = Grammars(write_tokenizer(tmp_path), "digest", VOCAB_SIZE)
    yield grammars
    grammars.close(TIMEOUT)


async def begun(
    grammars: Grammars, grammar: Grammar, eos: Sequence[int] = (END,), previous: Sequence[int] = ()
) -> Constraint:
    return await asyncio.wait_for(grammars.constraint(grammar, eos, previous), TIMEOUT)


def allowed(constraint: Constraint) -> list[int]:
    token_ids = constraint.allowed().token_ids
    assert token_ids is not None
    return [int(token_id) for token_id in token_ids.nonzero()[0]]


def ids(text: str) -> list[int]:
    """A token a byte."""
    return list(text.encode())


def word(text: str) -> int:
    return 256 + WORDS.index(text)


async def test_a_choice_leaves_what_goes_on_with_one_of_its_texts(grammars: Grammars) -> None:
    constraint = await begun(grammars, Grammar("choice", ("yes", "no", "maybe so")))
    assert allowed(constraint) == [*ids("mny"), word("yes"), word("no"), word("maybe")]
    constraint.advance(word("maybe"))
    assert allowed(constraint) == ids(" ")
    for token_id in ids(" so"):
        assert not constraint.allowed().ends_only
        constraint.advance(token_id)
    assert allowed(constraint) == [END]
    assert constraint.allowed().ends_only


@pytest.mark.parametrize("text", ["é😀", 'a"\\', "\x00\x7f\u2028", "\n", "/x/"])
async def test_any_text_can_be_a_choice(grammars: Grammars, text: str) -> None:
    constraint = await begun(grammars, Grammar("choice", (text, "another")), previous=ids(text))
    assert allowed(constraint) == [END]


async def test_an_end_comes_only_where_the_grammar_accepts(grammars: Grammars) -> None:
    constraint = await begun(grammars, Grammar("regex", ("[ab]{2,3}",)), eos=(END, START, VOCAB_SIZE + 5))
    assert allowed(constraint) == ids("ab")
    constraint.advance(ids("a")[0])
    assert allowed(constraint) == ids("ab")
    constraint.advance(ids("b")[0])
    assert allowed(constraint) == [*ids("ab"), END, START]
    assert not constraint.allowed().ends_only


async def test_a_text_that_ends_answers_comes_only_as_an_end(grammars: Grammars) -> None:
    (newline,) = ids("\n")
    constraint = await begun(grammars, Grammar("regex", ("a\n?b|c",)), eos=(newline,))
    constraint.advance(ids("a")[0])
    assert allowed(constraint) == ids("b")
    done = await begun(grammars, Grammar("regex", ("a\n?b|c",)), eos=(newline,), previous=ids("c"))
    assert allowed(done) == [newline]


async def test_json_has_little_white_space(grammars: Grammars) -> None:
    """Else a model may write nothing but that for ever."""
    schema = Grammar("json_schema", (json.dumps({"type": "array", "items": {"type": "boolean"}}),))
    for text in ("[true,false]", "[true, false]", "[\n  true,\n  false\n]"):
        assert allowed(await begun(grammars, schema, previous=ids(text))) == [END]
    for text in (" [", "[true,  ", "[\n\n"):
        with pytest.raises(InvalidField, match="the tokens so far are not of this grammar"):
            await begun(grammars, schema, previous=ids(text))


async def test_true_is_a_schema(grammars: Grammars) -> None:
    assert END in allowed(await begun(grammars, Grammar("json_schema", ("true",)), previous=ids("[1, null]")))


async def test_lark(grammars: Grammars) -> None:
    grammar = Grammar("lark", ('start: "(" start ")" | "x"',))
    assert allowed(await begun(grammars, grammar, previous=ids("((x)"))) == ids(")")
    assert allowed(await begun(grammars, grammar, previous=ids("((x))"))) == [END]


async def test_what_goes_on_elsewhere_is_allowed_the_same(grammars: Grammars) -> None:
    schema = Grammar("json_schema", (json.dumps({"type": "object", "additionalProperties": {"type": "integer"}}),))
    text = ids('{"a":12,\n "b":-3}')
    constraint = await begun(grammars, schema)
    for number, token_id in enumerate(text):
        there = await begun(grammars, schema, previous=text[:number])
        assert allowed(there) == allowed(constraint)
        assert token_id in allowed(constraint)
        constraint.advance(token_id)
    assert allowed(await begun(grammars, schema, previous=[*text, END])) == allowed(constraint) == [END]


@pytest.mark.parametrize(
    ("grammar", "why"),
    [
        (Grammar("json_schema", ('{"not": {"type": "string"}}',)), "not"),
        (Grammar("json_schema", ('{"type": "object", "unevaluatedProperties": false}',)), "unevaluatedProperties"),
        (Grammar("json_schema", ('{"$ref": "https://example.com/x"}',)), "retriev"),
        (Grammar("json_schema", ("[]",)), "an object, or true"),
        (Grammar("json_schema", ("false",)), "an object, or true"),
        (Grammar("json_schema", ('{"const": NaN}',)), "."),
        (Grammar("json_schema", ('{"type": "integer", "minimum": 5, "maximum": 1}',)), "Unsatisfiable"),
        (Grammar("json_schema", ('{"items":' * 200 + "true" + "}" * 200,)), "recursion limit"),
        (Grammar("regex", ("(",)), "unclosed group"),
        (Grammar("lark", ("start: missing",)), "missing"),
        (Grammar("lark", ("start: start",)), "NoExtension"),
    ],
)
async def test_what_the_library_cannot_do_is_refused_with_its_reason(
    grammars: Grammars, grammar: Grammar, why: str
) -> None:
    for _ in range(2):
        with pytest.raises(InvalidField, match=f"(?s)^grammar.{grammar.kind}: .*{why}") as raised:
            await begun(grammars, grammar)
        assert raised.value.metadata == {"field": f"grammar.{grammar.kind}"}
        with pytest.raises(InvalidField, match=why):
            await grammars.check(grammar)


async def test_without_a_tokenizer_every_grammar_is_refused(tmp_path: Path) -> None:
    none, useless = Grammars(None, "", VOCAB_SIZE), Grammars(tmp_path / "none.json", "", VOCAB_SIZE)
    assert none.library == useless.library == ""
    for each, why in ((none, "brings no tokenizer.json"), (useless, "cannot be used")):
        with pytest.raises(InvalidField, match=why):
            await each.check(Grammar("regex", ("a",)))
        with pytest.raises(InvalidField, match=why):
            await begun(each, Grammar("regex", ("a",)))


async def test_a_session_without_ends_is_refused(grammars: Grammars) -> None:
    for eos in ((), (VOCAB_SIZE,)):
        with pytest.raises(InvalidField, match="no EOS tokens"):
            await begun(grammars, Grammar("regex", ("a",)), eos=eos)


async def test_where_no_token_goes_on_it_is_refused(grammars: Grammars) -> None:
    """All that would are ends of answers, which is too soon."""
    with pytest.raises(InvalidField, match="no token of the model's goes on with it"):
        await begun(grammars, Grammar("regex", ("a\nb",)), eos=ids("\n"), previous=ids("a"))


async def test_limits_end_what_asks_too_much(grammars: Grammars, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LIMITS", LLParserLimits(max_grammar_size=10))
    with pytest.raises(InvalidField, match=r"grammar\.json_schema"):
        await grammars.check(Grammar("json_schema", ('{"type": "object"}',)))


async def test_limits_that_show_on_the_way_end_the_answer(grammars: Grammars, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is replayed first, and not believed to be at its limit for what others have had done."""
    grammar = Grammar("regex", ("(a|b)*a(a|b){12}",))
    monkeypatch.setattr(module, "_LIMITS", LLParserLimits(max_lexer_states=40, verbose_errors=False))
    constraint = await begun(grammars, grammar)
    with pytest.raises(InvalidField, match=r"grammar\.regex: "):
        for number in range(400):
            assert allowed(constraint)
            constraint.advance(ids("ab")[number * number % 7 % 2])


async def test_what_others_have_had_done_stops_nobody(grammars: Grammars) -> None:
    """A matcher in error, as one is at a limit that others came near to, is replaced by a new one that is replayed."""
    constraint = await begun(grammars, Grammar("regex", ("[ab]{4}",)))
    constraint.advance(ids("a")[0])
    assert allowed(constraint) == ids("ab")
    broken: Any = constraint
    broken._matcher.consume_token(ids("z")[0])
    assert broken._matcher.is_error()
    constraint.advance(ids("b")[0])
    assert allowed(constraint) == ids("ab")
    assert not broken._matcher.is_error()
    broken._matcher.consume_token(ids("z")[0])
    (again,) = [broken._mask().token_ids.nonzero()[0].tolist()]
    assert again == allowed(constraint)


async def test_only_so_many_are_kept(grammars: Grammars) -> None:
    kept: Any = grammars
    first = Grammar("regex", ("a{0}",))
    for number in range(module._MAX_COMPILED + 3):
        await grammars.check(Grammar("regex", (f"a{{{number}}}",)))
        await grammars.check(first)
    assert len(kept._compiled) == module._MAX_COMPILED
    assert first.digest in kept._compiled
    assert Grammar("regex", ("a{1}",)).digest not in kept._compiled


async def test_who_leaves_takes_nothing_from_those_who_wait_for_the_same(grammars: Grammars) -> None:
    grammar = Grammar("regex", ("a+",))
    leaving, staying = (asyncio.ensure_future(grammars.check(grammar)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait_for(staying, TIMEOUT)


async def test_who_leaves_before_a_refusal_leaves_no_error_behind(grammars: Grammars) -> None:
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    busy, compiling = threading.Event(), grammars._compiling
    for _ in range(module._NUM_THREADS):  # so that it has left before the refusal
        compiling.submit(lambda: busy.wait(TIMEOUT))
    grammar = Grammar("lark", ("0",))
    leaving, staying = (asyncio.ensure_future(grammars.check(grammar)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait([leaving])
    busy.set()
    with pytest.raises(InvalidField):
        await asyncio.wait_for(staying, TIMEOUT)
    del leaving, staying
    for _ in range(3):  # what collects itself may have been held by what does not
        gc.collect()
        await asyncio.sleep(0.01)
    assert unheard == []


async def test_whether_it_is_ready_is_waited_for(grammars: Grammars) -> None:
    constraint = await begun(grammars, Grammar("regex", ("a+",)))
    constraint.wait(TIMEOUT)
    assert constraint.is_ready
    held: Any = constraint
    held._next = type(held._next)()
    constraint.wait(0.001)
    assert not constraint.is_ready
