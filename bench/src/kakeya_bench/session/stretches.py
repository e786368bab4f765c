"""The parts of a run that are compared: its head and its tail, once every turn has the same to do."""

from collections.abc import Sequence
from itertools import groupby

from kakeya_bench.conversation.turn import Turn

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
