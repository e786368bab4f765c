"""What snapshots cost: the figures of `make bench-snapshots`, and the bounds that they are held to."""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import Any

from kakeya_bench.report.quantities import Bytes, Seconds, Share
from kakeya_bench.report.verdict import Verdict, at_least, at_most
from kakeya_bench.statistics import intervals
from kakeya_bench.statistics.distribution import median, percentile

MOST_BEYOND_RATIO, MOST_BEYOND_BYTES = 0.01, 64 * 1024
"""What a file may have beyond the KV in it: 12 bytes a token of position and id, a hidden vector, a header."""
LEAST_RESUME_RATIO = 20.0
MOST_SLOWDOWN = 0.05

Gaps = Sequence[Sequence[float]]
"""Stretches of seconds from one token to the next."""


def num_kept(start: int, length: int, sink: int, window: int) -> int:
    """Tokens from one history index on that a session keeps at a length: its sinks and its window."""
    return sum(index < sink or index >= length - window for index in range(start, length))


def size(path: Path, sink: int, window: int, kv_bytes_per_token: int) -> dict[str, Any]:
    """Of a file of the store, which holds what a session gained from one history length to another.

    Args:
        path: named PREFIX-START-RANDOM-LENGTH.safetensors.
    """
    _, start, _, length = path.stem.rsplit("-", 3)
    num_tokens, size_bytes = num_kept(int(start), int(length), sink, window), path.stat().st_size
    kv_bytes = num_tokens * kv_bytes_per_token
    return {
        "start": int(start),
        "length": int(length),
        "num_tokens": num_tokens,
        "kv_bytes": kv_bytes,
        "size_bytes": size_bytes,
        "is_kept": is_size_kept(kv_bytes, size_bytes),
    }


def is_size_kept(kv_bytes: int, size_bytes: int) -> bool:
    return 0 <= size_bytes - kv_bytes <= MOST_BEYOND_RATIO * kv_bytes + MOST_BEYOND_BYTES


def resumes(num_tokens: int, seconds: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Of sessions of so many tokens, one number a round.

    Args:
        seconds: `prefill` of a new session's tokens, to its first answer's first token; `write` of the whole snapshot,
            by itself: sessions that are parked have theirs from the end of their last turn; `park` and `resume`, of the
            call, and of the next answer's first token.
    """
    returns = [park + resume for park, resume in zip(seconds["park"], seconds["resume"], strict=True)]
    with_write = [write + each for write, each in zip(seconds["write"], returns, strict=True)]
    return {
        "num_tokens": num_tokens,
        **{name: [*map(Seconds, each)] for name, each in seconds.items()},
        "ratio": median(seconds["prefill"]) / median(returns),
        "ratio_with_write": median(seconds["prefill"]) / median(with_write),
    }


def decodes(alone: Gaps, beside: Gaps, written_bytes: int) -> dict[str, Any]:
    """Of a session, alone and while another one's snapshots are written; so many bytes in all of these stretches."""
    slowdowns = [mean(one) / mean(other) - 1 for one, other in zip(beside, alone, strict=True)]
    interval = intervals.of_mean(slowdowns)
    return {
        "alone_ms": _milliseconds(alone),
        "beside_ms": _milliseconds(beside),
        # Of all tokens, so that a stall counts for what it takes.
        "slowdown": Share(mean(chain(*beside)) / mean(chain(*alone)) - 1),
        "slowdowns": [*map(Share, slowdowns)],
        "interval_95": [Share(interval.low), Share(interval.high)],
        "written_bytes_per_second": Bytes(written_bytes / sum(map(sum, beside))),
    }


def _milliseconds(stretches: Gaps) -> dict[str, float]:
    gaps = list(chain(*stretches))
    named = {"mean": mean(gaps), "p50": median(gaps), "p95": percentile(gaps, 95), "max": max(gaps)}
    return {name: round(value * 1e3, 2) for name, value in named.items()}


def verdicts(
    sizes: Sequence[Mapping[str, Any]], resumed: Mapping[str, Any], decoded: Mapping[str, Any]
) -> list[Verdict]:
    num_broken = sum(not each["is_kept"] for each in sizes)
    return [
        at_most("sizes", "files with more or less than their KV and what belongs to it:", num_broken, 0),
        at_least("resume", "times as fast as the prefill:", resumed["ratio"], LEAST_RESUME_RATIO),
        at_most("decode", "slower by", decoded["slowdown"], Share(MOST_SLOWDOWN)),
    ]
