"""Runs that never were: what gates, figures and pages are shown."""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from kakeya_bench.conversation.speech import Facts
from kakeya_bench.conversation.turn import Turn
from kakeya_bench.report.verdict import Verdict
from kakeya_bench.session.report import Report
from kakeya_bench.session.settings import SessionSettings

SINK, WINDOW, BYTES_PER_TOKEN = 4, 64, 1_000
CAPACITY = SINK + WINDOW
NEW, OUT = 30, 8
RSS = 300 << 20
FACTS = Facts(
    name="counter",
    fingerprint="f" * 8,
    exact=True,
    sink=SINK,
    window=WINDOW,
    reserved_bytes=100_000,
    kv_dtype="float32",
    kv_bytes_per_token=BYTES_PER_TOKEN,
    why_not="",
    worker={"worker_id": "one", "backend": "torch"},
)


def run(num_turns: int, *, session: int = 0, seed: int = 0, noise: float = 0.05, **fields: Any) -> list[Turn]:
    """A run as it should be: equal turns with a little noise, a lane that fills and stays full, memory that stays."""
    draw = random.Random(f"{seed}/{session}")
    turns = []
    for index in range(1, num_turns + 1):
        first, length = 0.25 * (1 + noise * draw.uniform(-1, 1)), index * (NEW + OUT)
        turn = Turn(
            session=session,
            index=index,
            started_seconds=(index - 1) * 1.0 + 0.1 * session,
            wall_seconds=first + 0.7,
            capacity=CAPACITY,
            num_new_tokens=NEW,
            num_tokens_out=OUT,
            history_length=length,
            time_to_first_token_seconds=first,
            prefill_seconds=first - 0.02,
            decode_seconds=0.7,
            kv_live_bytes=min(length, CAPACITY) * BYTES_PER_TOKEN,
            worker="one",
            worker_rss_bytes=RSS,
            num_evicted_tokens=max(0, min(NEW + OUT, length - CAPACITY)),
        )
        turns.append(replace(turn, **fields))
    return turns


def changed(turns: list[Turn], change: Callable[[Turn], dict[str, Any]], *, start: int = 0) -> list[Turn]:
    """The same run with other fields from a turn on."""
    return turns[:start] + [replace(turn, **change(turn)) for turn in turns[start:]]


def but(turns: list[Turn], place: int, **fields: Any) -> list[Turn]:
    """The same run with one turn that is otherwise."""
    return [*turns[:place], replace(turns[place], **fields), *turns[place + 1 :]]


def failed(index: int, error: str = "WorkerLost: gone", *, session: int = 0) -> Turn:
    """A turn that took long and gave nothing."""
    return Turn(session=session, index=index, started_seconds=index * 1.0, wall_seconds=600.0, error=error)


def report(turns: list[Turn], *flags: str, facts: Facts = FACTS, **known: Any) -> Report:
    """Of these turns, at a time and a place that never were."""
    there: dict[str, Any] = {"started_at": datetime(2026, 1, 1, tzinfo=UTC), "environment": {"cpu": "a"}} | known
    return Report(settings=SessionSettings.parse(["--output", "/nowhere", *flags]), facts=facts, turns=turns, **there)


def verdict(gate: str, turns: list[Turn], *flags: str, **known: Any) -> Verdict:
    """What one gate says of a run."""
    return next(said for said in report(turns, *flags, **known).verdicts() if said.gate == gate)
