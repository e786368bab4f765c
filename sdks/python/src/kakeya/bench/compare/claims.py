"""What is claimed of the comparison: each claim can fail, and says when it cannot be judged."""

from collections.abc import Mapping, Sequence

from kakeya.bench.compare.figures import at_mark
from kakeya.bench.compare.played_turn import PlayedTurn
from kakeya.bench.compare.rival import RUNTIME, Rival
from kakeya.bench.verdict import Outcome, Verdict


def judge(
    claims: Mapping[str, float], rivals: Sequence[Rival], turns: Sequence[PlayedTurn], mark: int
) -> list[Verdict]:
    """What becomes of each claim at the last mark.

    Args:
        claims: by a rival's name, how many times the runtime's time to first token its own must be.
    """
    every_turn = {RUNTIME: True, **{rival.name: rival.plays_every_turn for rival in rivals}}

    def first_token(player: str) -> float | None:
        played = [turn for turn in turns if turn.player == player]
        found = at_mark(played, mark, plays_every_turn=every_turn[player])
        return found.time_to_first_token_seconds if found else None

    return [_judged(name, factor, first_token(name), first_token(RUNTIME), mark) for name, factor in claims.items()]


def _judged(name: str, factor: float, theirs: float | None, ours: float | None, mark: int) -> Verdict:
    formula = f"time to first token at turn {mark}: {name} / {RUNTIME} >= {factor:g}"
    figures = {"turn": mark, "at_least": factor, name: theirs, RUNTIME: ours}
    for player, seconds in ((name, theirs), (RUNTIME, ours)):
        if not seconds:
            reason = f"{player} has no time to first token at turn {mark}"
            return Verdict(name, Outcome.UNDECIDED, formula, reason, figures)
    assert theirs and ours  # noqa: S101, PT018  # seen above
    ratio = theirs / ours
    outcome = Outcome.PASSED if ratio >= factor else Outcome.FAILED
    reason = f"{theirs * 1e3:,.1f} ms / {ours * 1e3:,.1f} ms = {ratio:.1f}"
    return Verdict(name, outcome, formula, reason, {**figures, "ratio": ratio})
