"""The turns of a level in figures."""

from collections.abc import Iterable, Sequence

from kakeya.bench.load.level import Level, LevelState
from kakeya.bench.load.limits import Limits
from kakeya.bench.percentile import distribution

Document = dict[str, object]


def aggregate(level: Level, limits: Limits) -> Document:
    """Figures of the turns that began in the measured period.

    Times are of those that succeeded; goodput and the share are of all of them, since who gets no answer does not get
    it in time. Each figure is None where there is nothing to compute it of.
    """
    turns = level.counted
    succeeded = [turn for turn in turns if turn.error is None]
    num_within_limits = sum(map(limits.are_met_by, turns))
    num_tokens_out = sum(turn.num_tokens_out for turn in succeeded)
    return {
        "measured_s": level.measured_seconds,
        "num_turns": len(turns),
        "num_errors": len(turns) - len(succeeded),
        "num_within_limits": num_within_limits,
        "share_within_limits": share_within(level, limits),
        "goodput_turns_per_s": _rate(num_within_limits, level),
        "turns_per_s": _rate(len(succeeded), level),
        "tokens_out_per_s": _rate(num_tokens_out, level),
        "num_tokens_in": sum(turn.num_new_tokens for turn in succeeded),
        "num_tokens_out": num_tokens_out,
        "time_to_first_token_s": distribution(_known(turn.time_to_first_token_seconds for turn in succeeded)),
        "time_per_output_token_s": distribution(_known(turn.time_per_output_token_seconds for turn in succeeded)),
        "turn_s": distribution(turn.wall_seconds for turn in succeeded),
    }


def share_within(level: Level, limits: Limits) -> float | None:
    """The share of the turns that met both limits; None where no turn counts."""
    turns = level.counted
    return sum(map(limits.are_met_by, turns)) / len(turns) if turns else None


def largest_within(levels: Sequence[Level], limits: Limits, goal_share: float) -> int | None:
    """The most sessions that a level had, all of them inside, with that share of its turns within the limits.

    A level that was broken off does not count: the turns that took longest are not among those that it has.
    """
    met = [
        level.num_sessions
        for level in levels
        if level.is_full
        and level.state is LevelState.COMPLETE
        and (share := share_within(level, limits)) is not None
        and share >= goal_share
    ]
    return max(met, default=None)


def _rate(count: int, level: Level) -> float | None:
    return count / level.measured_seconds if level.measured_seconds else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
