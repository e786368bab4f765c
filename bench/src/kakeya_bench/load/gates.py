"""The gates of a sweep: what must hold of its levels. Each can fail, and says when it cannot judge."""

from collections.abc import Sequence

from kakeya_bench.load.level import Level, LevelState
from kakeya_bench.load.settings import LoadSettings
from kakeya_bench.report.quantities import counted
from kakeya_bench.report.verdict import Outcome, Verdict

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
