"""The turns of a player in figures."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kakeya.bench.compare.played_turn import PlayedTurn
from kakeya.bench.percentile import distribution, median

MARK_TURNS = 5
"""A mark's figures are the medians of so many turns, the last of which is the mark."""

Document = dict[str, object]


@dataclass(frozen=True, slots=True)
class AtMark:
    """Medians of the turns that end at a mark.

    Attributes:
        time_to_first_token_seconds: None where no token came.
        num_turns: those of the turns that did not fail.
    """

    time_to_first_token_seconds: float | None
    total_seconds: float
    num_turns: int

    def document(self) -> Document:
        """As it stands in a report."""
        return {
            "time_to_first_token_s": self.time_to_first_token_seconds,
            "turn_s": self.total_seconds,
            "num_turns": self.num_turns,
        }


def at_mark(turns: Iterable[PlayedTurn], mark: int, *, plays_every_turn: bool) -> AtMark | None:
    """Of one player; None where its turn at the mark failed, or was not played.

    Args:
        turns: of the player, in any order.
        plays_every_turn: else the turn at the mark stands alone.
    """
    num_turns = MARK_TURNS if plays_every_turn else 1
    succeeded = [turn for turn in turns if turn.error is None and mark - num_turns < turn.index <= mark]
    if all(turn.index != mark for turn in succeeded):
        return None
    firsts = _known(turn.time_to_first_token_seconds for turn in succeeded)
    return AtMark(
        time_to_first_token_seconds=median(firsts) if firsts else None,
        total_seconds=median(_known(turn.total_seconds for turn in succeeded)),
        num_turns=len(succeeded),
    )


def figures(
    turns: Sequence[PlayedTurn], *, marks: Sequence[int], num_turns: int, plays_every_turn: bool,
    rss_before: int | None,
) -> Document:  # fmt: skip
    """Of one player.

    Args:
        turns: of the player, in order.
        num_turns: of the conversation.
        rss_before: resident memory of its server before the first turn.
    """
    succeeded = [turn for turn in turns if turn.error is None]
    failed = [turn for turn in turns if turn.error is not None]
    at_marks = {mark: at_mark(turns, mark, plays_every_turn=plays_every_turn) for mark in marks}
    played_seconds = sum(_known(turn.total_seconds for turn in succeeded))
    return {
        "num_turns": len(turns),
        "num_errors": len(failed),
        "first_error": f"turn {failed[0].index}: {failed[0].error}" if failed else None,
        "marks": {str(mark): found.document() if found else None for mark, found in at_marks.items()},
        "conversation_s": played_seconds if len(succeeded) == num_turns else None,
        "time_to_first_token_s": distribution(_known(turn.time_to_first_token_seconds for turn in succeeded)),
        "turn_s": distribution(_known(turn.total_seconds for turn in succeeded)),
        "num_sent_tokens": sum(turn.num_sent_tokens for turn in succeeded),
        "num_cached_tokens": _sum(turn.num_cached_tokens for turn in succeeded),
        "num_dropping_turns": sum(turn.num_dropped_tokens > 0 for turn in succeeded),
        "num_unknown_answers": sum(not turn.knows_answer for turn in succeeded) if plays_every_turn else None,
        "rss_bytes": _sizes([rss_before, *(turn.rss_bytes for turn in turns)]),
        "kv_live_bytes": _sizes(turn.kv_live_bytes for turn in succeeded),
        "kv_computed_bytes": _sizes(turn.kv_computed_bytes for turn in succeeded),
    }


def _sizes(values: Iterable[int | None]) -> Document | None:
    """The first and the last, as far as they are known, and the largest; None of none."""
    given = list(values)
    known = _known(given)
    return {"start": given[0], "end": given[-1], "max": max(known)} if known else None


def _sum(values: Iterable[int | None]) -> float | None:
    known = _known(values)
    return sum(known) if known else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
