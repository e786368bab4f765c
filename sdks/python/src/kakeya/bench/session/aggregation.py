"""The turns of a run in figures."""

from collections.abc import Iterable, Sequence

from kakeya.bench.percentile import distribution, mean, median
from kakeya.bench.session import stretches
from kakeya.bench.turn import Turn

BUCKET_SECONDS = 600.0
NUM_BUCKETS = 10
"""Of a run that is too short for so many buckets of ten minutes."""

Document = dict[str, object]


def aggregate(turns: Sequence[Turn], num_warm_up_turns: int) -> Document:
    """Figures of the whole run. Times are of turns after the warm-up that did not fail; sizes of all of those."""
    succeeded = [turn for turn in turns if turn.error is None]
    timed = stretches.after_warm_up(succeeded, num_warm_up_turns)
    return {
        "num_turns": len(turns),
        "num_errors": len(turns) - len(succeeded),
        "num_tokens_in": sum(turn.num_new_tokens for turn in succeeded),
        "num_tokens_out": sum(turn.num_tokens_out for turn in succeeded),
        "num_evicted_tokens": sum(turn.num_evicted_tokens for turn in succeeded),
        "turn_s": distribution(turn.wall_seconds for turn in timed),
        "time_to_first_token_s": distribution(_known(turn.time_to_first_token_seconds for turn in timed)),
        "time_to_first_token_per_new_token_s": distribution(_known(map(_per_new_token, timed))),
        "prefill_s": distribution(_known(turn.prefill_seconds for turn in timed)),
        "decode_s": distribution(_known(turn.decode_seconds for turn in timed)),
        "decode_per_token_s": distribution(_known(map(_per_token_out, timed))),
        "latency_drift_p50_s": _drift(timed),
        "kv_live_bytes": _extent([turn.kv_live_bytes for turn in succeeded]),
        "worker_rss_bytes": _extent([turn.worker_rss_bytes for turn in succeeded]),
    }


def buckets(turns: Sequence[Turn]) -> list[Document]:
    """Figures of ten minutes each, or of tenths of a run that is shorter than ten of them."""
    if not turns:
        return []
    end = max(turn.started_seconds + turn.wall_seconds for turn in turns)
    length = BUCKET_SECONDS if end >= NUM_BUCKETS * BUCKET_SECONDS else end / NUM_BUCKETS
    num_buckets = max(1, -int(-end // length)) if length else 1
    parts: list[list[Turn]] = [[] for _ in range(num_buckets)]
    for turn in turns:
        place = int(turn.started_seconds / length) if length else 0
        parts[min(place, num_buckets - 1)].append(turn)
    return [_bucket(part, number * length, min((number + 1) * length, end)) for number, part in enumerate(parts)]


def _bucket(turns: Sequence[Turn], start: float, end: float) -> Document:
    succeeded = [turn for turn in turns if turn.error is None]
    return {
        "start_s": start,
        "end_s": end,
        "num_turns": len(turns),
        "num_errors": len(turns) - len(succeeded),
        "turn_s": distribution(turn.wall_seconds for turn in succeeded),
        "time_to_first_token_s": distribution(_known(turn.time_to_first_token_seconds for turn in succeeded)),
        "time_to_first_token_per_new_token_s": distribution(_known(map(_per_new_token, succeeded))),
        "kv_live_bytes": _extent([turn.kv_live_bytes for turn in succeeded]),
        "worker_rss_bytes": _extent([turn.worker_rss_bytes for turn in succeeded]),
    }


def _drift(turns: Sequence[Turn]) -> float | None:
    """How much longer the median turn of the last tenth takes than that of the first; None of too few turns."""
    ordered = sorted(turns, key=lambda turn: turn.started_seconds)
    length = len(ordered) // stretches.SHARE
    if not length:
        return None
    seconds = [turn.wall_seconds for turn in ordered]
    return median(seconds[-length:]) - median(seconds[:length])


def _extent(values: Iterable[int | None]) -> Document | None:
    known = _known(values)
    return {"min": min(known), "mean": mean(known), "max": max(known)} if known else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _per_new_token(turn: Turn) -> float | None:
    return _share(turn.time_to_first_token_seconds, turn.num_new_tokens)


def _per_token_out(turn: Turn) -> float | None:
    return _share(turn.decode_seconds, turn.num_tokens_out)


def _share(seconds: float | None, count: int) -> float | None:
    return seconds / count if seconds is not None and count else None
