"""The report of a run: a JSON document, meanwhile and in the end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from kakeya_bench.conversation.turn import Turn
from kakeya_bench.report.verdict import Verdict
from kakeya_bench.session import gates
from kakeya_bench.session.gates import Measured
from kakeya_bench.statistics.distribution import distribution, extent, median

BUCKET_SECONDS = 600.0
NUM_BUCKETS = 10
"""Of a run that is too short for so many buckets of ten minutes."""
_FIELDS = [field.name for field in fields(Turn)]
Document = dict[str, object]
_Measure = Callable[[Turn], float | None]
_LATENCIES: dict[str, _Measure] = {
    "turn_s": lambda turn: turn.wall_seconds,
    "time_to_first_token_s": lambda turn: turn.time_to_first_token_seconds,
    "time_to_first_token_per_new_token_s": lambda turn: turn.first_token_cost_seconds,
}
_WORK: dict[str, _Measure] = {
    "prefill_s": lambda turn: turn.prefill_seconds,
    "decode_s": lambda turn: turn.decode_seconds,
    "decode_per_token_s": lambda turn: (
        turn.decode_seconds / turn.num_tokens_out if turn.decode_seconds is not None and turn.num_tokens_out else None
    ),
}


@dataclass(kw_only=True)
class Report(Measured):
    """What a run has found so far."""

    SCHEMA: ClassVar[str] = "kakeya.bench.session/1"

    def verdicts(self) -> list[Verdict]:
        return gates.judge(self)

    def found(self) -> dict[str, Any]:
        return {
            "gates": {verdict.gate: verdict.document() for verdict in self.verdicts()},
            "agg": aggregate(self.turns, self.settings.warm_up_turns),
            "buckets_10min": buckets(self.turns),
            "turns": [{name: getattr(turn, name) for name in _FIELDS} for turn in self.turns],
        }


def aggregate(turns: Sequence[Turn], num_warm_up_turns: int) -> Document:
    """Figures of the whole run. Times are of turns after the warm-up that did not fail; sizes of all of those."""
    succeeded = [turn for turn in turns if turn.error is None]
    timed = gates.after_warm_up(succeeded, num_warm_up_turns)
    return {
        "num_turns": len(turns),
        "num_errors": len(turns) - len(succeeded),
        "num_tokens_in": sum(turn.num_new_tokens for turn in succeeded),
        "num_tokens_out": sum(turn.num_tokens_out for turn in succeeded),
        "num_evicted_tokens": sum(turn.num_evicted_tokens for turn in succeeded),
        **_times(timed, _LATENCIES | _WORK),
        "latency_drift_p50_s": _drift(timed),
        **_sizes(succeeded),
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
        **_times(succeeded, _LATENCIES),
        **_sizes(succeeded),
    }


def _times(turns: Sequence[Turn], measures: dict[str, _Measure]) -> Document:
    return {name: distribution(map(measure, turns)) for name, measure in measures.items()}


def _sizes(turns: Sequence[Turn]) -> Document:
    return {
        "kv_live_bytes": extent(turn.kv_live_bytes for turn in turns),
        "worker_rss_bytes": extent(turn.worker_rss_bytes for turn in turns),
    }


def _drift(turns: Sequence[Turn]) -> float | None:
    """How much longer the median turn of the last tenth takes than that of the first; None of too few turns."""
    seconds = [turn.wall_seconds for turn in sorted(turns, key=lambda turn: turn.started_seconds)]
    length = len(seconds) // gates.SHARE
    return median(seconds[-length:]) - median(seconds[:length]) if length else None
