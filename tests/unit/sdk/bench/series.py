"""Turns of runs that never were: what the gates are shown."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kakeya.bench.session.gates import Measured, judge
from kakeya.bench.turn import Turn
from kakeya.bench.verdict import Verdict

CAPACITY, BYTES_PER_TOKEN = 68, 1_000
NEW, OUT = 30, 8
RSS = 300 << 20
NOISE = 0.05


def run(num_turns: int, *, session: int = 0, seed: int = 0, noise: float = NOISE, **fields: Any) -> list[Turn]:
    """A run as it should be: equal turns with a little noise, a lane that fills and stays full, memory that stays."""
    draw = random.Random(f"{seed}/{session}")
    return [
        replace(_turn(index, session, 0.25 * (1 + noise * draw.uniform(-1, 1))), **fields)
        for index in range(1, num_turns + 1)
    ]


def changed(turns: list[Turn], change: Callable[[Turn], dict[str, Any]], *, start: int = 0) -> list[Turn]:
    """The same run with other fields from a turn on."""
    return turns[:start] + [replace(turn, **change(turn)) for turn in turns[start:]]


def verdict(gate: str, turns: list[Turn], **measured: Any) -> Verdict:
    """What one gate says of a run."""
    given: dict[str, Any] = {"num_warm_up_turns": 5, "bytes_per_token": BYTES_PER_TOKEN, **measured}
    return next(said for said in judge(Measured(turns, **given)) if said.gate == gate)


def _turn(index: int, session: int, first_token_seconds: float) -> Turn:
    length = index * (NEW + OUT)
    return Turn(
        session=session,
        index=index,
        started_seconds=(index - 1) * 1.0 + 0.1 * session,
        wall_seconds=first_token_seconds + 0.7,
        capacity=CAPACITY,
        num_new_tokens=NEW,
        num_tokens_out=OUT,
        history_length=length,
        time_to_first_token_seconds=first_token_seconds,
        prefill_seconds=first_token_seconds - 0.02,
        decode_seconds=0.7,
        kv_live_bytes=min(length, CAPACITY) * BYTES_PER_TOKEN,
        worker="one",
        worker_rss_bytes=RSS,
        num_evicted_tokens=max(0, min(NEW + OUT, length - CAPACITY)),
    )


def bytes_of(turn: Turn) -> int:
    """What was live after a turn of `run`."""
    assert turn.kv_live_bytes is not None
    return turn.kv_live_bytes


def first_token_of(turn: Turn) -> float:
    """Seconds to the first token in a turn of `run`."""
    assert turn.time_to_first_token_seconds is not None
    return turn.time_to_first_token_seconds
