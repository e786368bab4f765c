"""The report of a sweep: a JSON document, meanwhile and in the end, with what each gate says."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from kakeya_bench.conversation import report
from kakeya_bench.load.level import Level, LevelState
from kakeya_bench.load.settings import LoadSettings
from kakeya_bench.report.quantities import counted
from kakeya_bench.report.verdict import Outcome, Verdict
from kakeya_bench.statistics.distribution import distribution

FEWEST_TURNS = 10
"""That the largest level must have for the share of its turns to be judged."""
_Finding = tuple[Outcome, str, dict[str, object]]


def judge(levels: Sequence[Level], settings: LoadSettings) -> list[Verdict]:
    """What each gate says of the levels that were reached."""
    formulas = {
        "errors": "no turn fails, and at every level some turns count",
        "goodput": f"with {counted(settings.sessions[-1], 'session')}, all get in, and {100 * settings.goal_share:g} % "
        f"of the turns or more meet both limits: {settings.ttft_limit_s:g} s to the first token, "
        f"{settings.tpot_limit_s:g} s for each token after it",
    }
    findings = {"errors": _errors(levels, settings), "goodput": _goodput(levels, settings)}
    return [
        Verdict(gate, outcome, formulas[gate], reason, figures) for gate, (outcome, reason, figures) in findings.items()
    ]


def _errors(levels: Sequence[Level], settings: LoadSettings) -> _Finding:
    """Turns of the warm-up are judged, too."""
    turns = [(level, turn) for level in levels for turn in level.turns]
    failed = [(level, turn) for level, turn in turns if turn.error is not None]
    figures: dict[str, object] = {"num_turns": len(turns), "num_errors": len(failed)}
    if failed:
        level, turn = failed[0]
        first = f"{counted(level.num_sessions, 'session')}, session {turn.session} turn {turn.index}: {turn.error}"
        return Outcome.FAILED, f"{len(failed):,} of {len(turns):,} turns failed; the first: {first}", figures
    for number in settings.sessions:
        if why_not := _why_not_judged(levels, number):
            return Outcome.UNDECIDED, why_not, figures
    return Outcome.PASSED, f"none of {len(turns):,} turns failed", figures


def _goodput(levels: Sequence[Level], settings: LoadSettings) -> _Finding:
    if not settings.judge_goodput:
        return Outcome.SKIPPED, "not asked for", {}
    number = settings.sessions[-1]
    if why_not := _why_not_judged(levels, number):
        return Outcome.UNDECIDED, why_not, {}
    largest = levels[-1]
    share, num_turns = largest.share_in_time(settings) or 0.0, len(largest.counted)
    figures: dict[str, object] = {"share_within_limits": share, "num_turns": num_turns}
    name = counted(number, "session")
    if not largest.is_full:
        return Outcome.FAILED, f"{largest.num_opened} of {name} got in; the next: {largest.refusal}", figures
    if num_turns < FEWEST_TURNS:
        return Outcome.UNDECIDED, f"{name}: {num_turns} turns count, and it takes {FEWEST_TURNS}", figures
    outcome = Outcome.PASSED if share >= settings.goal_share else Outcome.FAILED
    return outcome, f"{name}: {share:.1%} of {num_turns:,} turns met both limits", figures


def _why_not_judged(levels: Sequence[Level], num_sessions: int) -> str:
    """Why nothing can be said of a level that was asked for; "" where something can."""
    name = counted(num_sessions, "session")
    level = next((level for level in levels if level.num_sessions == num_sessions), None)
    if level is None:
        return f"{name}: the level was not reached"
    if level.state is LevelState.REFUSED:
        return f"{name}: not one got in: {level.refusal}"
    if level.state is not LevelState.COMPLETE:
        return f"{name}: the level did not come to its end"
    return "" if level.counted else f"{name}: no turn began after the warm-up"


@dataclass(kw_only=True)
class Report(report.Report):
    """What a sweep has found so far.

    Attributes:
        why_broken_off: "" where it is not.
    """

    SCHEMA: ClassVar[str] = "kakeya.bench.load/1"

    settings: LoadSettings
    levels: list[Level] = field(default_factory=list)
    why_broken_off: str = ""

    def verdicts(self) -> list[Verdict]:
        return judge(self.levels, self.settings)

    def found(self) -> dict[str, Any]:
        return {
            "why_broken_off": self.why_broken_off,
            "gates": {verdict.gate: verdict.document() for verdict in self.verdicts()},
            "largest_num_sessions_within_limits": largest_within(self.levels, self.settings),
            "levels": [self._level(level) for level in self.levels],
        }

    def _level(self, level: Level) -> dict[str, object]:
        return {
            "num_sessions": level.num_sessions,
            "num_opened": level.num_opened,
            "refusal": level.refusal,
            "state": level.state.value,
            "why_not_closed": next(iter(level.not_closed), ""),
            **aggregate(level, self.settings),
            "kv": asdict(level.kv) if level.kv else None,
            "turns": [asdict(turn) for turn in level.turns],
        }


def aggregate(level: Level, settings: LoadSettings) -> dict[str, object]:
    """Figures of the turns that began in the measured period.

    Times are of those that succeeded; goodput and the share are of all of them, since who gets no answer does not get
    it in time. Each figure is None where there is nothing to compute it of.
    """
    turns = level.counted
    succeeded = [turn for turn in turns if turn.error is None]
    num_within_limits = sum(map(settings.is_in_time, turns))
    num_tokens_out = sum(turn.num_tokens_out for turn in succeeded)
    return {
        "measured_s": level.measured_seconds,
        "num_turns": len(turns),
        "num_errors": len(turns) - len(succeeded),
        "num_within_limits": num_within_limits,
        "share_within_limits": level.share_in_time(settings),
        "goodput_turns_per_s": _rate(num_within_limits, level),
        "turns_per_s": _rate(len(succeeded), level),
        "tokens_out_per_s": _rate(num_tokens_out, level),
        "num_tokens_in": sum(turn.num_new_tokens for turn in succeeded),
        "num_tokens_out": num_tokens_out,
        "time_to_first_token_s": distribution(turn.time_to_first_token_seconds for turn in succeeded),
        "time_per_output_token_s": distribution(turn.time_per_output_token_seconds for turn in succeeded),
        "turn_s": distribution(turn.wall_seconds for turn in succeeded),
    }


def largest_within(levels: Sequence[Level], settings: LoadSettings) -> int | None:
    """The most sessions that a level had, all of them inside, with the goal's share of its turns in time.

    A level that was broken off does not count: the turns that took longest are not among those that it has.
    """
    complete = [level for level in levels if level.is_full and level.state is LevelState.COMPLETE]
    met = [level for level in complete if (level.share_in_time(settings) or 0.0) >= settings.goal_share]
    return max((level.num_sessions for level in met), default=None)


def _rate(count: int, level: Level) -> float | None:
    return count / level.measured_seconds if level.measured_seconds else None
