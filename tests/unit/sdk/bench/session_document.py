"""Reports of `kakeya bench session` that were never measured, for what is made of reports."""

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kakeya.bench.facts import Facts
from kakeya.bench.session import options
from kakeya.bench.session.report import Report
from kakeya.bench.turn import Turn

SINK, WINDOW, TOKEN_BYTES = 4, 236, 1536
FACTS = Facts(
    model="nano",
    fingerprint="f" * 8,
    exact=True,
    sink=SINK,
    window=WINDOW,
    reserved_bytes=439_296,
    kv_dtype="bfloat16",
    bytes_per_token=TOKEN_BYTES,
    why_not="",
    worker={"worker_id": "worker-1", "backend": "torch", "num_threads": 2},
)


def turns(num_turns: int, *, session: int = 0, worker: str = "worker-1", seed: int = 0) -> list[Turn]:
    """One session, as a machine that is busy now and then plays it."""
    draw = random.Random(seed + session)
    history, started, rss, played = 0, 0.0, 300 << 20, []
    for index in range(1, num_turns + 1):
        new, out = draw.randint(10, 50), draw.randint(8, 16)
        history += new + out
        first = new * 0.002 * draw.lognormvariate(0, 0.3)
        wall = first + out * 0.011 * draw.lognormvariate(0, 0.2)
        rss = max(290 << 20, rss + draw.randint(-1, 1) * 300_000)
        played.append(
            Turn(
                session=session, index=index, started_seconds=started, wall_seconds=wall, capacity=SINK + WINDOW,
                num_new_tokens=new, num_tokens_out=out, history_length=history, time_to_first_token_seconds=first,
                prefill_seconds=first * 0.9, decode_seconds=wall - first,
                kv_live_bytes=min(history, SINK + WINDOW) * TOKEN_BYTES, worker=worker, worker_rss_bytes=rss,
            )
        )  # fmt: skip
        started += wall
    return played


def failed(index: int, error: str = "WorkerLost: gone", *, session: int = 0) -> Turn:
    """A turn that took long and gave nothing."""
    return Turn(
        session=session, index=index, started_seconds=index * 0.25, wall_seconds=600.0, capacity=0, num_new_tokens=20,
        error=error,
    )  # fmt: skip


def document(played: Iterable[Turn], facts: Facts = FACTS, *argv: str, state: str = "complete") -> dict[str, Any]:
    """The report of these turns."""
    report = Report(options.parse([*argv, "--output", "/nowhere"], {}), facts, list(played), state)
    return report.document()


def without_rss(played: Iterable[Turn]) -> list[Turn]:
    """The turns as they are known without an operator's key."""
    return [replace(turn, worker_rss_bytes=None) for turn in played]


_UNKNOWN = replace(FACTS, bytes_per_token=None, why_not="the config.json of 'nano' is not known", worker={})
_MUTE = [replace(turn, time_to_first_token_seconds=None, num_tokens_out=0) for turn in turns(9)]
CASES = {
    "plain": document(turns(130)),
    "no turn": document([], state="interrupted"),
    "one turn": document(turns(1)),
    "only errors": document([failed(index) for index in range(1, 11)], state="given_up"),
    "an error first": document([failed(1), *turns(30)[1:]]),
    "no first token": document(_MUTE),
    "no memory": document(without_rss(turns(130))),
    "some memory": document([*without_rss(turns(20)), *turns(130)[20:]]),
    "no config": document(turns(130), _UNKNOWN),
    "no warm-up": document(turns(30), FACTS, "--warm-up-turns", "0"),
    "gates skipped": document(turns(130), FACTS, "--skip-gate", "kv_bounded", "--skip-gate", "rss_bounded"),
    "two windows": document([*turns(30), *(replace(turn, capacity=68) for turn in turns(30, session=1))]),
    "no time at all": document([replace(turns(1)[0], wall_seconds=0.0, time_to_first_token_seconds=0.0)]),
}
"""Runs of all kinds."""
