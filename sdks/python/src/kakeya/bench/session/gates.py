"""The gates of a run: what must hold of its turns. Each can fail, and says when it cannot judge."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from kakeya.bench import bootstrap
from kakeya.bench.bootstrap import Cost, Interval
from kakeya.bench.percentile import median
from kakeya.bench.session import stretches
from kakeya.bench.turn import Turn
from kakeya.bench.verdict import Outcome, Verdict

MAX_RATIO = 1.05
MAX_HALF_WIDTH = 0.10
RSS_ALLOWANCE_SHARE = 0.02
RSS_ALLOWANCE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Measured:
    """What the gates judge.

    Attributes:
        turns: in any order.
        num_warm_up_turns: of each session; they are judged by nothing but `errors` and `kv_bounded`.
        bytes_per_token: KV of one token, computed from the model's config.json; None where that is not known.
        why_not: why it is not.
        next_tokens: what the session, and one that was given its transcript in one append, generated next; None where
            that was not asked or could not be done.
        why_not_exact: why it was not done.
        why_not_rss: why nobody tells the workers' memory; "" where somebody does.
    """

    turns: Sequence[Turn]
    num_warm_up_turns: int
    bytes_per_token: int | None
    why_not: str = ""
    next_tokens: tuple[list[int], list[int]] | None = None
    why_not_exact: str = ""
    why_not_rss: str = ""


def judge(measured: Measured, skipped: Sequence[str] = ()) -> list[Verdict]:
    """What each gate says."""
    return [
        Verdict(name, Outcome.SKIPPED, FORMULAS[name], "not asked for")
        if name in skipped
        else Verdict(name, *_outcome(name, gate, measured))
        for name, gate in GATES.items()
    ]


_Finding = tuple[Outcome, str, dict[str, object]]


def _outcome(
    name: str, gate: Callable[[Measured], _Finding], measured: Measured
) -> tuple[Outcome, str, str, dict[str, object]]:
    outcome, reason, figures = gate(measured)
    return outcome, FORMULAS[name], reason, figures


def kv_bounded(measured: Measured) -> _Finding:
    """Every turn that did not fail holds what min(history, S + W) tokens weigh, and some of them are full."""
    if measured.bytes_per_token is None:
        return Outcome.UNDECIDED, measured.why_not, {}
    turns = [turn for turn in measured.turns if turn.error is None]
    if not turns:
        return Outcome.UNDECIDED, "no turn succeeded", {}
    figures: dict[str, object] = {"kv_bytes_per_token": measured.bytes_per_token, "num_turns": len(turns)}
    for turn in turns:
        expected = min(turn.history_length, turn.capacity) * measured.bytes_per_token
        if turn.kv_live_bytes != expected or not expected:
            where = f"session {turn.session} turn {turn.index}, history {turn.history_length:,}"
            return Outcome.FAILED, f"{where}: {turn.kv_live_bytes:,} bytes, expected {expected:,}", figures
    full = [turn.kv_live_bytes for turn in turns if turn.history_length >= turn.capacity]
    if not full:
        return Outcome.UNDECIDED, "no history outgrew sinks and window: that it stays bounded was not seen", figures
    return Outcome.PASSED, f"equal in all {len(turns):,} turns, {len(full):,} of them full", figures


def rss_bounded(measured: Measured) -> _Finding:
    """The worker's process has not grown."""
    turns = stretches.after_warm_up(measured.turns, measured.num_warm_up_turns)
    steady = sorted(
        (turn for turn in turns if turn.error is None), key=lambda turn: (turn.worker, turn.started_seconds)
    )
    figures: dict[str, object] = {}
    findings = [
        _worker_rss(worker, [turn.worker_rss_bytes for turn in played], figures)
        for worker, played in groupby(steady, key=lambda turn: turn.worker)
    ]
    for outcome in (Outcome.FAILED, Outcome.UNDECIDED):
        for found, reason in findings:
            if found is outcome:
                return outcome, "; ".join(filter(None, (reason, measured.why_not_rss))), figures
    if not findings:
        return Outcome.UNDECIDED, "no turn after the warm-up succeeded", figures
    return Outcome.PASSED, "; ".join(reason for _, reason in findings), figures


def _worker_rss(worker: str, series: Sequence[int | None], figures: dict[str, object]) -> tuple[Outcome, str]:
    known = [rss for rss in series if rss]
    if len(known) < len(series):
        return Outcome.UNDECIDED, f"worker {worker or '(unknown)'}: its memory is not known in every turn"
    length = len(known) // stretches.SHARE
    if length < stretches.FEWEST:
        return Outcome.UNDECIDED, _too_few(len(known))
    head, tail, most = median(known[:length]), median(known[-length:]), max(known)
    allowance = max(RSS_ALLOWANCE_BYTES, RSS_ALLOWANCE_SHARE * head)
    figures[worker] = {"head_bytes": head, "tail_bytes": tail, "max_bytes": most, "allowance_bytes": allowance}
    says = f"worker {worker}: {head / 2**20:,.1f} MiB, {(tail - head) / 2**20:+,.1f} in the tail, "
    says += f"{(most - head) / 2**20:+,.1f} at most"
    if tail > head + allowance or most > head + 2 * allowance:
        return Outcome.FAILED, says
    return Outcome.PASSED, says


def prefill_bounded(measured: Measured) -> _Finding:
    """A new token costs in the tail what it costs in the head."""
    head, tail = stretches.head_and_tail(measured.turns, measured.num_warm_up_turns)
    if len(head) < stretches.FEWEST:
        num_steady = sum(turn.is_after_plateau for turn in measured.turns)
        return Outcome.UNDECIDED, _too_few(num_steady), {"num_head_turns": len(head)}
    costs = [_costs(head), _costs(tail)]
    if not all(costs):
        return Outcome.UNDECIDED, "no turn of head or tail had a first token", {"num_head_turns": len(head)}
    ratio = bootstrap.cost_ratio(*costs)
    return _ratio_outcome(ratio), _ratio_reason(ratio), {
        "ratio": ratio.estimate, "low": ratio.low, "high": ratio.high, "half_width": ratio.half_width,
        "num_head_turns": len(head), "num_tail_turns": len(tail),
    }  # fmt: skip


def _costs(turns: Sequence[Turn]) -> list[Cost]:
    return [
        Cost(turn.time_to_first_token_seconds, turn.num_new_tokens)
        for turn in turns
        if turn.time_to_first_token_seconds is not None
    ]


def _ratio_outcome(ratio: Interval) -> Outcome:
    if ratio.low > MAX_RATIO:
        return Outcome.FAILED
    return Outcome.UNDECIDED if ratio.half_width > MAX_HALF_WIDTH else Outcome.PASSED


def _ratio_reason(ratio: Interval) -> str:
    says = f"tail / head = {ratio.estimate:.3f} (95 %: {ratio.low:.3f} to {ratio.high:.3f})"
    if _ratio_outcome(ratio) is Outcome.UNDECIDED:
        says += f", wider than +-{MAX_HALF_WIDTH:.0%}: more turns, or a machine with less else to do, would decide"
    return says


def errors(measured: Measured) -> _Finding:
    """No turn failed."""
    if not measured.turns:
        return Outcome.UNDECIDED, "no turn was played", {"num_errors": 0}
    failed = [turn for turn in measured.turns if turn.error is not None]
    figures: dict[str, object] = {"num_errors": len(failed)}
    if not failed:
        return Outcome.PASSED, f"none in {len(measured.turns):,} turns", figures
    first = failed[0]
    return (
        Outcome.FAILED,
        f"{len(failed):,} of {len(measured.turns):,} turns; the first is session {first.session} turn {first.index}: "
        f"{first.error}",
        figures,
    )


def exact(measured: Measured) -> _Finding:
    """The transcript in one append gives the same next tokens."""
    if measured.next_tokens is None:
        return Outcome.UNDECIDED, measured.why_not_exact or "the transcript was not replayed", {}
    played, replayed = measured.next_tokens
    figures: dict[str, object] = {"num_tokens": len(played)}
    if not played:
        return Outcome.UNDECIDED, "no token was generated", figures
    if played == replayed:
        return Outcome.PASSED, f"the same {len(played)} tokens, {len(set(played))} of them distinct", figures
    pairs = zip(played, replayed, strict=False)
    same = next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(played), len(replayed)))
    return Outcome.FAILED, f"they differ from token {same + 1} on, of {len(played)} and {len(replayed)}", figures


def _too_few(num_turns: int) -> str:
    needed = stretches.SHARE * stretches.FEWEST
    return f"{num_turns} turns after warm-up and plateau, {needed} are needed"


GATES: dict[str, Callable[[Measured], _Finding]] = {
    "kv_bounded": kv_bounded,
    "rss_bounded": rss_bounded,
    "prefill_bounded": prefill_bounded,
    "errors": errors,
    "exact": exact,
}

FORMULAS = {
    "kv_bounded": "kv_live_bytes = min(history, sink + window) x bytes a token by config.json, not zero, every turn; "
    "histories outgrow sink + window",
    "rss_bounded": f"per worker, after the warm-up: median of the last tenth <= median of the first tenth + a, and the "
    f"maximum <= that + 2 a, with a = the larger of {RSS_ALLOWANCE_BYTES >> 20} MiB and {RSS_ALLOWANCE_SHARE:.0%}",
    "prefill_bounded": "r = time to first token per new token, last tenth / first tenth of the turns after warm-up and "
    f"plateau: the lower bound of its 95 % block-bootstrap interval <= {MAX_RATIO}; undecided where the interval is "
    f"wider than +-{MAX_HALF_WIDTH:.0%} of r",
    "errors": "turns that failed = 0",
    "exact": "the transcript in one append gives the same next tokens",
}
