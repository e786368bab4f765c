"""Generates under a grammar: masked choices, ends, recovery, failures on the way."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from kakeya_shared.errors.tree import InvalidField
from kakeya_worker.conformance.tools.tokenizer_files import NUM_TOKENS, token_text, write_tokenizer
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.operation import Append
from kakeya_worker.engine.lanes.results import Finish
from kakeya_worker.grammars.constraint import Constraint
from kakeya_worker.grammars.grammar import Grammar
from kakeya_worker.grammars.grammars import Grammars
from tests.unit.worker.engine_calls import TIMEOUT, error_of, open_session, start_append, start_generate

VOCABULARY, END = 1024, NUM_TOKENS - 2
DIGITS = Grammar("regex", ("[0-9]{3,40}x",))
DRAWN: dict[str, Any] = {"eos": {END}, "seed": 5, "temperature": 1.0}


@pytest.fixture
def grammars(tmp_path: Path) -> Iterator[Grammars]:
    grammars = Grammars(write_tokenizer(tmp_path), "", VOCABULARY)
    yield grammars
    grammars.close(TIMEOUT)


@pytest.fixture
def prompted(engine: Engine) -> Engine:
    """With sessions "r", "s" and "t", of the same 30 tokens."""
    for session_id in ("r", "s", "t"):
        open_session(engine, session_id)
        start_append(engine, 0, 30, session_id).future.result(TIMEOUT)
    return engine


def constraint(grammars: Grammars, grammar: Grammar, previous: tuple[int, ...] = ()) -> Constraint:
    return asyncio.run(grammars.constraint(grammar, {END}, previous))


def answer(
    engine: Engine, session_id: str, held_to: Any, max_tokens: int = 60, **asked: Any
) -> tuple[Finish, list[int]]:
    generate, tokens = start_generate(
        engine, 30, max_tokens, session_id=session_id, constraint=held_to, **{**DRAWN, **asked}
    )
    return generate.future.result(TIMEOUT).finish, tokens.ids


def test_it_ends_where_the_grammar_does(prompted: Engine, grammars: Grammars) -> None:
    finish, tokens = answer(prompted, "s", constraint(grammars, DIGITS))
    assert (finish, tokens[-1]) == (Finish.EOS, END)
    text = token_text(tokens[:-1])
    assert text.endswith("x")
    assert text[:-1].isdigit()


def test_what_is_counted_and_biased_stays_within_it(prompted: Engine, grammars: Grammars) -> None:
    """A bias on what is masked, and on an end that is not accepted yet, has no effect; logprobs are of raw logits."""
    finish, tokens = answer(
        prompted, "s", constraint(grammars, DIGITS), logit_bias=((END, 1000.0), (65, 1000.0)), repetition_penalty=1.5
    )
    assert (finish, tokens.index(END)) == (Finish.EOS, len(tokens) - 1)
    assert 65 not in tokens
    generate, free = start_generate(prompted, 30, 1, session_id="r", num_top_logprobs=3)
    generate.future.result(TIMEOUT)
    generate, held = start_generate(
        prompted,
        30,
        1,
        session_id="t",
        num_top_logprobs=3,
        constraint=constraint(grammars, Grammar("regex", ("zz",))),
        eos={END},
    )
    generate.future.result(TIMEOUT)
    (of_free,), (of_held,) = free.details, held.details
    assert of_free is not None
    assert of_held is not None
    assert of_held.top == of_free.top
    assert of_held.logprob < of_free.logprob


def test_an_end_is_taken_where_nothing_else_is_left(prompted: Engine, grammars: Grammars) -> None:
    """Although there are to be more tokens; where there is something else, it waits."""
    one = Grammar("choice", ("ab",))
    assert answer(prompted, "s", constraint(grammars, one), min_tokens=9) == (Finish.EOS, [*b"ab", END])
    finish, tokens = answer(
        prompted, "t", constraint(grammars, Grammar("regex", ("[ab]*",))), min_tokens=9, logit_bias=((END, 1000.0),)
    )
    assert (finish, len(tokens), tokens[-1]) == (Finish.EOS, 10, END)


def test_it_may_be_cut(prompted: Engine, grammars: Grammars) -> None:
    finish, tokens = answer(prompted, "s", constraint(grammars, DIGITS), 2)
    assert (finish, len(tokens)) == (Finish.MAX_TOKENS, 2)
    assert token_text(tokens).isdigit()


@pytest.mark.parametrize("num_before", [1, 3])
def test_what_goes_on_elsewhere_is_as_if_nothing_had_happened(
    prompted: Engine, grammars: Grammars, num_before: int
) -> None:
    finish, whole = answer(prompted, "s", constraint(grammars, DIGITS))
    before = tuple(whole[:num_before])
    start_append_of(prompted, before)
    generate, rest = start_generate(
        prompted,
        30 + num_before,
        60,
        session_id="t",
        constraint=constraint(grammars, DIGITS, before),
        previous_token_ids=before,
        **DRAWN,
    )
    assert (generate.future.result(TIMEOUT).finish, [*before, *rest.ids]) == (finish, whole)


def start_append_of(engine: Engine, token_ids: tuple[int, ...]) -> None:
    append = Append("t", 1, 30, token_ids)
    engine.submit(append)
    append.future.result(TIMEOUT)


class Held:
    """A constraint whose masks come when a test lets them, or not at all."""

    def __init__(self, inner: Constraint) -> None:
        self.inner = inner
        self.masks: Future[Any] = Future()
        self.num_waits = 0

    @property
    def is_ready(self) -> bool:
        return self.masks.done()

    def wait(self, timeout_seconds: float) -> None:
        self.num_waits += 1

    def allowed(self) -> Any:
        return self.masks.result(TIMEOUT)

    def advance(self, token_id: int) -> None:
        self.inner.advance(token_id)


def test_a_mask_that_is_late_delays_nobody_else(prompted: Engine, grammars: Grammars) -> None:
    late = Held(constraint(grammars, Grammar("choice", ("ab",))))
    prefilling = start_append(prompted, 30, 900, "r")
    waiting, tokens = start_generate(prompted, 30, 2, session_id="s", constraint=late, eos={END})
    free, _ = start_generate(prompted, 30, 60, session_id="t")
    assert free.future.result(TIMEOUT).num_generated == 60
    prefilling.future.result(TIMEOUT)
    assert late.num_waits
    assert not tokens.ids
    late.masks.set_result(late.inner.allowed())
    waiting.future.result(TIMEOUT)
    assert tokens.ids == [97, 97]  # by the mask that it was let have, again


def test_alone_it_waits_for_its_mask(prompted: Engine, grammars: Grammars) -> None:
    late = Held(constraint(grammars, Grammar("choice", ("ab",))))
    waiting, tokens = start_generate(prompted, 30, 1, session_id="s", constraint=late, eos={END})
    while not late.num_waits:
        pass
    late.masks.set_result(late.inner.allowed())
    waiting.future.result(TIMEOUT)
    assert tokens.ids == [97]


def test_a_grammar_that_asks_too_much_on_the_way_ends_its_answer_alone(prompted: Engine, grammars: Grammars) -> None:
    broken = Held(constraint(grammars, DIGITS))
    broken.masks.set_exception(DIGITS.refused("too complex"))
    failing, _ = start_generate(prompted, 30, 5, session_id="s", constraint=broken, eos={END})
    other, _ = start_generate(prompted, 30, 5, session_id="t")
    assert isinstance(error_of(failing.future), InvalidField)
    assert other.future.result(TIMEOUT).num_generated == 5
    again, _ = start_generate(prompted, 30, 5, session_id="s")
    assert again.future.result(TIMEOUT).num_generated == 5
