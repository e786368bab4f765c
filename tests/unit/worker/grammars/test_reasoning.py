"""Answers that think first: where the thought ends, its bound, and the grammar behind it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kakeya_shared.errors.tree import InvalidField
from kakeya_worker.conformance.tools.tokenizer_files import NUM_TOKENS, write_tokenizer
from kakeya_worker.grammars.grammar import Grammar
from kakeya_worker.grammars.grammars import Grammars
from kakeya_worker.grammars.reasoning import ReasonedConstraint, Reasoning

VOCAB_SIZE = 300
END = NUM_TOKENS - 2
TIMEOUT = 60.0
CLOSE, OPEN = (7, 8, 7, 9), (5, 6)
DIGIT = Grammar("regex", ("[0-9]",))
DIGITS = list(b"0123456789")


@pytest.fixture
def grammars(tmp_path: Path) -> Iterator[Grammars]:
    grammars = Grammars(write_tokenizer(tmp_path), "", VOCAB_SIZE)
    yield grammars
    grammars.close(TIMEOUT)


async def begun(
    grammars: Grammars, reasoning: Reasoning, grammar: Grammar | None = None, previous: tuple[int, ...] = ()
) -> ReasonedConstraint:
    making = grammars.reasoned(reasoning, grammar, {END, VOCAB_SIZE}, previous)
    return await asyncio.wait_for(making, TIMEOUT)


def allowed(constraint: ReasonedConstraint) -> list[int] | None:
    """None: all ids."""
    constraint.wait(TIMEOUT)
    assert constraint.is_ready
    token_ids = constraint.allowed().token_ids
    return None if token_ids is None else [int(token_id) for token_id in token_ids.nonzero()[0]]


WITHIN = [token_id for token_id in range(VOCAB_SIZE) if token_id != END]


@pytest.mark.parametrize("thought", [(), (1, 2, 3), (7, 8), (7, 8, 7, 8), (7, 7)])
async def test_a_grammar_begins_behind_the_thought(grammars: Grammars, thought: tuple[int, ...]) -> None:
    constraint = await begun(grammars, Reasoning(CLOSE), DIGIT)
    for token_id in (*thought, *CLOSE):
        assert allowed(constraint) == WITHIN
        constraint.advance(token_id)
    assert allowed(constraint) == DIGITS
    constraint.advance(DIGITS[3])
    assert allowed(constraint) == [END]
    assert constraint.allowed().ends_only


async def test_an_answer_may_do_without(grammars: Grammars) -> None:
    constraint = await begun(grammars, Reasoning(CLOSE, OPEN), DIGIT)
    assert allowed(constraint) == [5, *DIGITS]
    constraint.advance(DIGITS[1])
    assert allowed(constraint) == [END]
    constraint = await begun(grammars, Reasoning(CLOSE, OPEN), DIGIT)
    constraint.advance(5)
    assert allowed(constraint) == [6]
    constraint.advance(6)
    for token_id in (1, *CLOSE):
        assert allowed(constraint) == WITHIN
        constraint.advance(token_id)
    assert allowed(constraint) == DIGITS


async def test_at_its_bound_it_ends(grammars: Grammars) -> None:
    """By what is left of its end."""
    for thought, rest in (((1, 1, 1, 1), CLOSE), ((1, 1, 7, 8), CLOSE[2:]), ((1, 7, 8, 7), CLOSE[3:])):
        constraint = await begun(grammars, Reasoning(CLOSE, max_tokens=4), DIGIT)
        for token_id in thought:
            assert allowed(constraint) == WITHIN
            constraint.advance(token_id)
        for token_id in rest:
            assert allowed(constraint) == [token_id]
            constraint.advance(token_id)
        assert allowed(constraint) == DIGITS


async def test_a_bound_needs_no_grammar(grammars: Grammars) -> None:
    constraint = await begun(grammars, Reasoning((9,), OPEN, max_tokens=3))
    assert allowed(constraint) is None
    for token_id, then in ((5, [6]), (6, None), (1, [9]), (9, None), (3, None)):
        constraint.advance(token_id)
        assert allowed(constraint) == then
    constraint = await begun(grammars, Reasoning((9,), OPEN, max_tokens=3))
    for token_id in (1, 2, 3, 4):
        constraint.advance(token_id)
        assert allowed(constraint) is None


async def test_what_goes_on_elsewhere_is_allowed_the_same(grammars: Grammars) -> None:
    reasoning = Reasoning(CLOSE, OPEN, max_tokens=4)
    whole = (*OPEN, 1, 7, *CLOSE[1:], DIGITS[4])
    constraint = await begun(grammars, reasoning, DIGIT)
    for number, token_id in enumerate(whole):
        assert allowed(await begun(grammars, reasoning, DIGIT, whole[:number])) == allowed(constraint)
        constraint.advance(token_id)
    assert allowed(await begun(grammars, reasoning, DIGIT, whole)) == allowed(constraint) == [END]
    for others in ((5, 1), (*OPEN, 1, 1, 1)):
        with pytest.raises(InvalidField, match="reasoning: the tokens so far are other ones"):
            await begun(grammars, reasoning, DIGIT, others)
