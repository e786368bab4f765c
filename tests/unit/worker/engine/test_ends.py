"""Ends that are masked: EOS tokens and stop sequences before `min_tokens`, EOS tokens that are ignored."""

from typing import Any

import pytest

from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.results import Finish
from tests.unit.worker.engine_calls import TIMEOUT, open_session, start_append, start_generate

VOCABULARY = 1024
NUM_TOKENS = 24


@pytest.fixture
def prompted(engine: Engine) -> Engine:
    """With sessions "free", "s" and "t", of the same 30 tokens."""
    for session_id in ("free", "s", "t"):
        open_session(engine, session_id)
        start_append(engine, 0, 30, session_id).future.result(TIMEOUT)
    return engine


def _tokens(engine: Engine, session_id: str, max_tokens: int = NUM_TOKENS, **asked: Any) -> tuple[Finish, list[int]]:
    generate, tokens = start_generate(engine, 30, max_tokens, session_id=session_id, **asked)
    return generate.future.result(TIMEOUT).finish, tokens.ids


def test_eos_is_not_chosen_before_so_many_tokens(prompted: Engine) -> None:
    """Half of all ids are EOS, so that some would come at once."""
    eos = set(range(0, VOCABULARY, 2))
    _, free = _tokens(prompted, "free")
    assert set(free[:7]) & eos
    finish, tokens = _tokens(prompted, "s", eos=eos, min_tokens=7)
    assert finish is Finish.EOS
    assert len(tokens) > 7
    assert not set(tokens[:-1]) & eos


def test_eos_may_be_the_first_token_after_the_least_number(prompted: Engine) -> None:
    """It is the likeliest of all, always."""
    eos: dict[str, Any] = {"eos": {77}, "logit_bias": ((77, 1000.0),)}
    finish, tokens = _tokens(prompted, "s", min_tokens=5, **eos)
    assert (finish, len(tokens), tokens[-1]) == (Finish.EOS, 6, 77)
    assert 77 not in tokens[:-1]
    assert _tokens(prompted, "t", 5, min_tokens=5, **eos) == (Finish.MAX_TOKENS, tokens[:5])


def test_eos_that_is_ignored_never_comes(prompted: Engine) -> None:
    eos = set(range(0, VOCABULARY, 2))
    finish, tokens = _tokens(prompted, "s", eos=eos, ignores_eos=True, seed=4, temperature=1.0)
    assert (finish, len(tokens)) == (Finish.MAX_TOKENS, NUM_TOKENS)
    assert not set(tokens) & eos


def test_masked_ends_are_those_of_the_session_alone(prompted: Engine) -> None:
    """Without any, nothing is masked; a token of a stop sequence may come."""
    _, free = _tokens(prompted, "free")
    assert _tokens(prompted, "s", ignores_eos=True, min_tokens=NUM_TOKENS) == (Finish.MAX_TOKENS, free)


def test_stop_sequences_are_not_looked_for_before_so_many_tokens(prompted: Engine) -> None:
    _, free = _tokens(prompted, "free")
    assert len(set(free[:9])) == 9
    sequences = (tuple(free[1:3]), (free[8],))
    assert _tokens(prompted, "s", stop_token_sequences=sequences, min_tokens=4) == (Finish.STOP_SEQUENCE, free[:9])


def test_a_stop_sequence_may_end_with_the_last_of_the_least_number(prompted: Engine) -> None:
    _, free = _tokens(prompted, "free")
    stop: dict[str, Any] = {"stop_token_sequences": (tuple(free[1:4]),)}
    assert _tokens(prompted, "s", min_tokens=4, **stop) == (Finish.STOP_SEQUENCE, free[:4])
    assert _tokens(prompted, "t", min_tokens=5, **stop) == (Finish.MAX_TOKENS, free)


@pytest.mark.parametrize("num_before", [1, 4, 5, 11])
@pytest.mark.parametrize("drawn", [{}, {"seed": 8, "temperature": 1.0}], ids=["greedy", "drawn"])
def test_what_goes_on_elsewhere_is_as_if_nothing_had_happened(
    prompted: Engine, num_before: int, drawn: dict[str, Any]
) -> None:
    """Tokens that were produced before count for the least number, and for the penalties."""
    asked: dict[str, Any] = {
        "eos": set(range(0, VOCABULARY, 3)),
        "min_tokens": 9,
        "stop_token_sequences": tuple((token_id,) for token_id in range(1, VOCABULARY, 9)),
        "repetition_penalty": 1.75,
        **drawn,
    }
    finish, whole = _tokens(prompted, "s", **asked)
    num_before = min(num_before, len(whole) - 1)
    assert len(whole) >= 9
    start_generate(
        prompted, 30, num_before, session_id="t", **{**asked, "stop_token_sequences": (), "min_tokens": num_before}
    )[0].future.result(TIMEOUT)
    generate, rest = start_generate(
        prompted, 30 + num_before, NUM_TOKENS, session_id="t", previous_token_ids=tuple(whole[:num_before]), **asked
    )
    done = generate.future.result(TIMEOUT)
    assert (done.finish, whole[:num_before] + rest.ids) == (finish, whole)
    assert done.num_generated == len(whole)


def test_a_repetition_penalty_keeps_a_generate_from_what_it_has_said(prompted: Engine) -> None:
    _, free = _tokens(prompted, "free", 40)
    assert len(set(free)) < 40
    generate, tokens = start_generate(prompted, 30, 40, repetition_penalty=2.0)
    generate.future.result(TIMEOUT)
    assert tokens.ids[0] == free[0]
    assert len(set(tokens.ids)) > len(set(free))
    assert generate.counts == {token_id: tokens.ids.count(token_id) for token_id in tokens.ids}
