"""The gates of a sweep: what must hold of its levels. Each can fail, and says when it cannot judge."""

from collections.abc import Sequence

from kakeya.bench.load.aggregation import share_within
from kakeya.bench.load.level import Level, LevelState
from kakeya.bench.load.options import Options
from kakeya.bench.verdict import Outcome, Verdict

FEWEST_TURNS = 10
"""That the largest level must have for the share of its turns to be judged."""
_Finding = tuple[Outcome, str, dict[str, object]]


def judge(levels: Sequence[Level], options: Options) -> list[Verdict]:
    """What each gate says of the levels that were reached."""
    return [
        _verdict("errors", "no turn fails, and at every level some turns count", _errors(levels, options)),
        _verdict("goodput", _goodput_formula(options), _goodput(levels, options)),
    ]


def _verdict(gate: str, formula: str, finding: _Finding) -> Verdict:
    outcome, reason, figures = finding
    return Verdict(gate, outcome, formula, reason, figures)


def _errors(levels: Sequence[Level], options: Options) -> _Finding:
    """Turns of the warm-up are judged, too."""
    turns = [(level, turn) for level in levels for turn in level.turns]
    failed = [(level, turn) for level, turn in turns if turn.error is not None]
    figures: dict[str, object] = {"num_turns": len(turns), "num_errors": len(failed)}
    if failed:
        level, turn = failed[0]
        first = f"{_name(level.num_sessions)}, session {turn.session} turn {turn.index}: {turn.error}"
        return Outcome.FAILED, f"{len(failed):,} of {len(turns):,} turns failed; the first: {first}", figures
    for number in options.numbers_of_sessions:
        if why_not := _why_not_judged(levels, number):
            return Outcome.UNDECIDED, why_not, figures
    return Outcome.PASSED, f"none of {len(turns):,} turns failed", figures


def _goodput_formula(options: Options) -> str:
    limits = options.limits
    return (
        f"with {_name(options.numbers_of_sessions[-1])}, all get in, and {100 * options.goal_share:g} % of the turns "
        f"or more meet both limits: {limits.time_to_first_token_seconds:g} s to the first token, "
        f"{limits.time_per_output_token_seconds:g} s for each token after it"
    )


def _goodput(levels: Sequence[Level], options: Options) -> _Finding:
    if not options.judges_goodput:
        return Outcome.SKIPPED, "not asked for", {}
    number = options.numbers_of_sessions[-1]
    if why_not := _why_not_judged(levels, number):
        return Outcome.UNDECIDED, why_not, {}
    largest = levels[-1]
    share, num_turns = share_within(largest, options.limits) or 0.0, len(largest.counted)
    figures: dict[str, object] = {"share_within_limits": share, "num_turns": num_turns}
    if not largest.is_full:
        return Outcome.FAILED, f"{largest.num_opened} of {_name(number)} got in; the next: {largest.refusal}", figures
    if num_turns < FEWEST_TURNS:
        return Outcome.UNDECIDED, f"{_name(number)}: {num_turns} turns count, and it takes {FEWEST_TURNS}", figures
    outcome = Outcome.PASSED if share >= options.goal_share else Outcome.FAILED
    return outcome, f"{_name(number)}: {share:.1%} of {num_turns:,} turns met both limits", figures


def _why_not_judged(levels: Sequence[Level], num_sessions: int) -> str:
    """Why nothing can be said of a level that was asked for; "" where something can."""
    level = next((level for level in levels if level.num_sessions == num_sessions), None)
    if level is None:
        return f"{_name(num_sessions)}: the level was not reached"
    if level.state is LevelState.REFUSED:
        return f"{_name(num_sessions)}: not one got in: {level.refusal}"
    if level.state is not LevelState.COMPLETE:
        return f"{_name(num_sessions)}: the level did not come to its end"
    return "" if level.counted else f"{_name(num_sessions)}: no turn began after the warm-up"


def _name(num_sessions: int) -> str:
    return f"{num_sessions} session{'' if num_sessions == 1 else 's'}"
