"""The gates of a run: what must hold of its turns, and the stretches that are compared. Each can fail, and says when it
cannot judge.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, takewhile
from typing import Any

from kakeya_bench.conversation import report
from kakeya_bench.conversation.speech import Facts
from kakeya_bench.conversation.turn import Turn
from kakeya_bench.report.verdict import Outcome, Verdict
from kakeya_bench.session.settings import SessionSettings
from kakeya_bench.statistics import intervals
from kakeya_bench.statistics.distribution import median
from kakeya_bench.statistics.intervals import Cost

SHARE = 10
"""Head and tail are each one of so many equal parts."""
FEWEST = 10
"""Turns that a head must have to be judged."""
MAX_RATIO = 1.05
MAX_HALF_WIDTH = 0.10
RSS_ALLOWANCE_SHARE = 0.02
RSS_ALLOWANCE_BYTES = 16 << 20
_Finding = tuple[Outcome, str, dict[str, Any]]


def head_and_tail(turns: Sequence[Turn], num_warm_up_turns: int) -> tuple[list[Turn], list[Turn]]:
    """The first and the last tenth of the turns after warm-up and plateau, of all sessions together, in order of time.

    Turns that failed are in neither.
    """
    head: list[Turn] = []
    tail: list[Turn] = []
    played = sorted(steady(turns, num_warm_up_turns), key=lambda turn: (turn.session, turn.index))
    for _, group in groupby(played, key=lambda turn: turn.session):
        of_session = list(group)
        length = len(of_session) // SHARE
        head += of_session[:length]
        tail += of_session[len(of_session) - length :]
    return sorted(head, key=_start), sorted(tail, key=_start)


def steady(turns: Sequence[Turn], num_warm_up_turns: int) -> list[Turn]:
    """Those after warm-up and plateau."""
    return [turn for turn in after_warm_up(turns, num_warm_up_turns) if turn.is_after_plateau]


def after_warm_up(turns: Sequence[Turn], num_warm_up_turns: int) -> list[Turn]:
    """Those beyond the first turns of each session."""
    return [turn for turn in turns if turn.index > num_warm_up_turns]


def _start(turn: Turn) -> float:
    return turn.started_seconds


@dataclass(kw_only=True)
class Measured(report.Report):
    """What the gates judge.

    Attributes:
        turns: in any order; those of the warm-up are judged by nothing but `errors` and `kv_bounded`.
        next_tokens: what the session, and one that was given its transcript in one append, generated next; None where
            that was not asked or could not be done.
        why_not_exact: why it was not done.
        why_not_rss: why the workers' memory is not told; "" where it is.
    """

    settings: SessionSettings
    facts: Facts = field()
    turns: list[Turn] = field(default_factory=list)
    next_tokens: tuple[list[int], list[int]] | None = None
    why_not_exact: str = ""
    why_not_rss: str = ""

    @property
    def succeeded(self) -> list[Turn]:
        """The turns that did not fail."""
        return [turn for turn in self.turns if turn.error is None]


def judge(measured: Measured) -> list[Verdict]:
    """What each gate says."""
    not_asked: _Finding = Outcome.SKIPPED, "not asked for", {}
    verdicts = []
    for name, (gate, formula) in GATES.items():
        outcome, reason, figures = not_asked if name in measured.settings.skipped else gate(measured)
        verdicts.append(Verdict(name, outcome, formula, reason, figures))
    return verdicts


def kv_bounded(measured: Measured) -> _Finding:
    """Every turn that did not fail holds what min(history, S + W) tokens weigh, and some of them are full."""
    weight = measured.facts.kv_bytes_per_token
    if weight is None:
        return Outcome.UNDECIDED, measured.facts.why_not, {}
    turns = measured.succeeded
    if not turns:
        return Outcome.UNDECIDED, "no turn succeeded", {}
    figures: dict[str, Any] = {"kv_bytes_per_token": weight, "num_turns": len(turns)}
    for turn in turns:
        expected = min(turn.history_length, turn.capacity) * weight
        if turn.kv_live_bytes != expected or not expected:
            where = f"session {turn.session} turn {turn.index}, history {turn.history_length:,}"
            return Outcome.FAILED, f"{where}: {turn.kv_live_bytes:,} bytes, expected {expected:,}", figures
    num_full = sum(turn.history_length >= turn.capacity for turn in turns)
    if not num_full:
        return Outcome.UNDECIDED, "no history outgrew sinks and window: that it stays bounded was not seen", figures
    return Outcome.PASSED, f"equal in all {len(turns):,} turns, {num_full:,} of them full", figures


def rss_bounded(measured: Measured) -> _Finding:
    """The worker's process has not grown."""
    steady = after_warm_up(measured.succeeded, measured.settings.warm_up_turns)
    steady.sort(key=lambda turn: (turn.worker, turn.started_seconds))
    if not steady:
        return Outcome.UNDECIDED, "no turn after the warm-up succeeded", {}
    figures: dict[str, Any] = {}
    findings = [
        _worker_rss(worker, [turn.worker_rss_bytes for turn in played], figures)
        for worker, played in groupby(steady, key=lambda turn: turn.worker)
    ]
    for outcome in (Outcome.FAILED, Outcome.UNDECIDED):
        for found, reason in findings:
            if found is outcome:
                return outcome, "; ".join(filter(None, (reason, measured.why_not_rss))), figures
    return Outcome.PASSED, "; ".join(reason for _, reason in findings), figures


def _worker_rss(worker: str, series: Sequence[int | None], figures: dict[str, Any]) -> tuple[Outcome, str]:
    known = [rss for rss in series if rss]
    if len(known) < len(series):
        return Outcome.UNDECIDED, f"worker {worker or '(unknown)'}: its memory is not known in every turn"
    length = len(known) // SHARE
    if length < FEWEST:
        return Outcome.UNDECIDED, _too_few(len(known))
    head, tail, most = median(known[:length]), median(known[-length:]), max(known)
    allowance = max(RSS_ALLOWANCE_BYTES, RSS_ALLOWANCE_SHARE * head)
    figures[worker] = {"head_bytes": head, "tail_bytes": tail, "max_bytes": most, "allowance_bytes": allowance}
    has_grown = tail > head + allowance or most > head + 2 * allowance
    return (
        Outcome.FAILED if has_grown else Outcome.PASSED,
        f"worker {worker}: {head / 2**20:,.1f} MiB, {(tail - head) / 2**20:+,.1f} in the tail, "
        f"{(most - head) / 2**20:+,.1f} at most",
    )


def prefill_bounded(measured: Measured) -> _Finding:
    """A new token costs in the tail what it costs in the head."""
    head, tail = head_and_tail(measured.turns, measured.settings.warm_up_turns)
    figures: dict[str, Any] = {"num_head_turns": len(head)}
    if len(head) < FEWEST:
        num_steady = len(steady(measured.turns, measured.settings.warm_up_turns))
        return Outcome.UNDECIDED, _too_few(num_steady), figures
    costs = [_costs(head), _costs(tail)]
    if min(map(len, costs)) < 2:  # of one turn nothing says how far it can be trusted
        return Outcome.UNDECIDED, "hardly a turn of head or tail had a first token", figures
    ratio = intervals.cost_ratio(*costs)
    figures |= {
        "ratio": ratio.estimate,
        "low": ratio.low,
        "high": ratio.high,
        "half_width": ratio.half_width,
        "num_tail_turns": len(tail),
    }
    says = f"tail / head = {ratio.estimate:.3f} (95 %: {ratio.low:.3f} to {ratio.high:.3f})"
    if ratio.low > MAX_RATIO:
        return Outcome.FAILED, says, figures
    if ratio.half_width > MAX_HALF_WIDTH:
        why = f"wider than +-{MAX_HALF_WIDTH:.0%}: more turns, or a machine with less else to do, would decide"
        return Outcome.UNDECIDED, f"{says}, {why}", figures
    return Outcome.PASSED, says, figures


def _costs(turns: Sequence[Turn]) -> list[Cost]:
    times = [(turn.time_to_first_token_seconds, turn.num_new_tokens) for turn in turns]
    return [Cost(seconds, num_tokens) for seconds, num_tokens in times if seconds is not None]


def errors(measured: Measured) -> _Finding:
    """No turn failed."""
    if not measured.turns:
        return Outcome.UNDECIDED, "no turn was played", {"num_errors": 0}
    failed = [turn for turn in measured.turns if turn.error is not None]
    figures: dict[str, Any] = {"num_errors": len(failed)}
    if not failed:
        return Outcome.PASSED, f"none in {len(measured.turns):,} turns", figures
    first = failed[0]
    where = f"session {first.session} turn {first.index}: {first.error}"
    return Outcome.FAILED, f"{len(failed):,} of {len(measured.turns):,} turns; the first is {where}", figures


def exact(measured: Measured) -> _Finding:
    """The transcript in one append gives the same next tokens."""
    if measured.next_tokens is None:
        return Outcome.UNDECIDED, measured.why_not_exact or "the transcript was not replayed", {}
    played, replayed = measured.next_tokens
    figures: dict[str, Any] = {"num_tokens": len(played)}
    if not played:
        return Outcome.UNDECIDED, "no token was generated", figures
    if played == replayed:
        return Outcome.PASSED, f"the same {len(played)} tokens, {len(set(played))} of them distinct", figures
    num_same = len([*takewhile(lambda pair: pair[0] == pair[1], zip(played, replayed, strict=False))])
    return Outcome.FAILED, f"they differ from token {num_same + 1} on, of {len(played)} and {len(replayed)}", figures


def _too_few(num_turns: int) -> str:
    needed = SHARE * FEWEST
    return f"{num_turns} turns after warm-up and plateau, {needed} are needed"


GATES: dict[str, tuple[Callable[[Measured], _Finding], str]] = {
    "kv_bounded": (
        kv_bounded,
        "kv_live_bytes = min(history, sink + window) x bytes a token by config.json, not zero, every turn; histories "
        "outgrow sink + window",
    ),
    "rss_bounded": (
        rss_bounded,
        "per worker, after the warm-up: median of the last tenth <= median of the first tenth + a, and the maximum <= "
        f"that + 2 a, with a = the larger of {RSS_ALLOWANCE_BYTES >> 20} MiB and {RSS_ALLOWANCE_SHARE:.0%}",
    ),
    "prefill_bounded": (
        prefill_bounded,
        "r = time to first token per new token, last tenth / first tenth of the turns after warm-up and plateau: the "
        f"lower bound of its 95 % block-bootstrap interval <= {MAX_RATIO}; undecided where the interval is wider than "
        f"+-{MAX_HALF_WIDTH:.0%} of r",
    ),
    "errors": (errors, "turns that failed = 0"),
    "exact": (exact, "the transcript in one append gives the same next tokens"),
}
"""Each gate and its formula."""
