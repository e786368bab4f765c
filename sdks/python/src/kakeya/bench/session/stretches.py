"""The parts of a run that are compared: its head and its tail, once every turn has the same to do."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from kakeya.bench.turn import Turn

SHARE = 10
"""Head and tail are each one of so many equal parts."""
FEWEST = 10
"""Turns that a head must have to be judged."""


def head_and_tail(turns: Sequence[Turn], num_warm_up_turns: int) -> tuple[list[Turn], list[Turn]]:
    """The first and the last tenth of the turns after warm-up and plateau, of all sessions together, in order of time.

    Turns that failed are in neither.
    """
    head: list[Turn] = []
    tail: list[Turn] = []
    for steady in _steady(turns, num_warm_up_turns):
        length = len(steady) // SHARE
        head += steady[:length]
        tail += steady[len(steady) - length :]
    return sorted(head, key=_start), sorted(tail, key=_start)


def after_warm_up(turns: Sequence[Turn], num_warm_up_turns: int) -> list[Turn]:
    """Those beyond the first turns of each session."""
    return [turn for turn in turns if turn.index > num_warm_up_turns]


def _steady(turns: Sequence[Turn], num_warm_up_turns: int) -> Iterator[list[Turn]]:
    """Turns after warm-up and plateau, by session."""
    by_session = sorted(after_warm_up(turns, num_warm_up_turns), key=lambda turn: (turn.session, turn.index))
    for _, played in groupby(by_session, key=lambda turn: turn.session):
        yield [turn for turn in played if turn.is_after_plateau]


def _start(turn: Turn) -> float:
    return turn.started_seconds
