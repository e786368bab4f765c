"""Masks behind drafts: found out in one call while drafts are computed, and the same as those found out one by one."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest
from llguidance import LLMatcher, LLParserLimits

from kakeya_shared.errors.tree import InvalidField
from kakeya_worker.conformance.tools.tokenizer_files import NUM_TOKENS, write_tokenizer
from kakeya_worker.grammars.constraint import Constraint
from kakeya_worker.grammars.grammar import Grammar
from kakeya_worker.grammars.reasoning import ReasonedConstraint, Reasoning, Thought
from kakeya_worker.grammars.vocabulary import load
from kakeya_worker.host.daemon_threads import DaemonThreads

VOCAB_SIZE = 300
END = NUM_TOKENS - 2
TIMEOUT = 60.0
HELD = Grammar("regex", (r"(ab?c*[0-9]){1,40}",))
TEXT = list(b"abc1ac22ab3a4")

New = Callable[..., Constraint]


@pytest.fixture
def threads() -> Iterator[DaemonThreads]:
    made = DaemonThreads(2, "masks")
    yield made
    made.close(TIMEOUT)


@pytest.fixture
def new(tmp_path: Path, threads: DaemonThreads) -> New:
    vocabulary = load(write_tokenizer(tmp_path), VOCAB_SIZE)

    def begun(grammar: Grammar = HELD, end: int = END, max_lexer_states: int | None = None) -> Constraint:
        def matcher() -> LLMatcher:
            return LLMatcher(
                vocabulary.tokenizer,
                grammar.library_form,
                log_level=0,
                limits=LLParserLimits(max_lexer_states=max_lexer_states),
            )

        constraint = Constraint(grammar, vocabulary, matcher(), matcher, [end], threads)
        constraint.begin(())
        return constraint

    return begun


def allowed(constraint: Constraint | ReasonedConstraint) -> list[int]:
    token_ids = constraint.allowed().token_ids
    assert token_ids is not None
    return [int(token_id) for token_id in token_ids.nonzero()[0]]


def stop(threads: DaemonThreads) -> Event:
    """Once all is found out that was asked; nothing more is, until the event is set."""
    come, go_on = Barrier(3), Event()
    for _ in range(2):
        threads.submit(lambda: (come.wait(TIMEOUT), go_on.wait(TIMEOUT)))
    come.wait(TIMEOUT)
    return go_on


def test_masks_of_right_drafts_are_there_before_they_are_asked_for(new: New, threads: DaemonThreads) -> None:
    plain, ahead = new(), new()
    ahead.advance(TEXT[0])
    plain.advance(TEXT[0])
    ahead.foresee([*TEXT[1:6], ord("z"), *TEXT[6:]])
    go_on = stop(threads)
    seen = []
    for token_id in TEXT[1:6]:
        ahead.advance(token_id)
        assert ahead.is_ready
        seen.append(allowed(ahead))
    ahead.advance(TEXT[6])  # where the draft was wrong
    assert not ahead.is_ready
    go_on.set()
    for token_id, expected in zip(TEXT[1:6], seen, strict=True):
        plain.advance(token_id)
        assert allowed(plain) == expected
    plain.advance(TEXT[6])
    assert allowed(ahead) == allowed(plain)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_drafted_masks_are_the_same(new: New, seed: int) -> None:
    draw = random.Random(seed)
    plain, ahead = new(), new()
    for _ in range(25):
        token_id = draw.choice([each for each in allowed(plain) if each != END])
        drafts = [
            draw.choice([END, VOCAB_SIZE - 1, NUM_TOKENS, *b"abc123abc123abc123"]) for _ in range(draw.randrange(6))
        ]
        for constraint in (plain, ahead):
            constraint.advance(token_id)
        if draw.random() < 0.8:
            ahead.foresee(drafts)
        if draw.random() < 0.5:
            ahead.wait(TIMEOUT)
        while drafts and draw.random() < 0.8 and drafts[0] in allowed(plain) and drafts[0] != END:
            assert allowed(ahead) == allowed(plain)
            for constraint in (plain, ahead):
                constraint.advance(drafts[0])
            drafts = drafts[1:]
        assert allowed(ahead) == allowed(plain)
        if allowed(plain) == [END]:
            break


def test_what_drafts_ask_too_much_is_no_harm_to_the_answer(new: New) -> None:
    """The library counts its effort: an answer that drafts have spent it for is replayed."""
    grammar = Grammar("regex", (r"(a|b)*a(a|b){12}",))
    texts = [list(b"abaabbbabaab"), list(b"bbabbaabaaab")]
    outcomes = []
    for is_ahead in (False, True):
        constraint = new(grammar, max_lexer_states=40)
        seen: list[object] = []
        try:
            for token_id, wrong in zip(*texts, strict=True):
                constraint.advance(token_id)
                if is_ahead:
                    constraint.foresee([wrong, wrong, *texts[1]])
                seen.append(allowed(constraint))
        except InvalidField as error:
            seen.append(error.metadata)
        outcomes.append(seen)
    assert outcomes[0] == outcomes[1]


def test_a_matcher_in_error_is_replaced_behind_drafts(new: New) -> None:
    plain, broken = new(), new()
    inner: Any = broken
    for token_id in TEXT[:6]:
        for constraint in (plain, broken):
            constraint.advance(token_id)
        broken.wait(TIMEOUT)
        inner._matcher.consume_token(ord("z"))
        broken.foresee(TEXT[1:])
        assert allowed(broken) == allowed(plain)
    assert inner._matcher.is_error()  # by the last one, which nobody has met yet


def test_a_draft_behind_which_nothing_can_come_is_refused_when_it_is_chosen(new: New) -> None:
    held = new(Grammar("regex", ("abcd",)), ord("c"))
    held.advance(ord("a"))
    held.foresee([ord("b"), ord("c")])
    assert allowed(held) == [ord("b")]
    held.advance(ord("b"))
    with pytest.raises(InvalidField, match="no token of the model's goes on"):
        held.allowed()


def test_behind_a_thought_drafts_are_foreseen(new: New, threads: DaemonThreads) -> None:
    reasoned = ReasonedConstraint(Thought(Reasoning((ord("!"),))), new(), [END], VOCAB_SIZE)
    reasoned.advance(ord("x"))
    reasoned.foresee([ord("!"), ord("a")])
    reasoned.advance(ord("!"))
    assert allowed(reasoned) == [ord("a"), *allowed(reasoned)[1:]]
    reasoned.advance(TEXT[0])
    reasoned.foresee(TEXT[1:])
    go_on = stop(threads)
    reasoned.advance(TEXT[1])
    assert reasoned.is_ready
    go_on.set()
