"""What is claimed of a rival, and what a run says of that."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from kakeya_bench.compare.rival import RUNTIME
from kakeya_bench.compare.settings import CompareSettings
from kakeya_bench.compare.turns import LongChat, PlayedTurn
from kakeya_bench.report import verdict
from kakeya_bench.report.quantities import Seconds, counted
from kakeya_bench.report.verdict import Outcome, Verdict
from kakeya_bench.statistics.distribution import median

LAST_TURNS = 10
"""At the end of the conversation: their median is what first tokens are judged by."""
_MOST_NAMED = 5


def of_chats(
    settings: CompareSettings, turns: Sequence[PlayedTurn], long_chats: Mapping[str, LongChat]
) -> Iterator[Verdict]:
    """What becomes of all claims but that a rival is slower."""
    for name, (factor, milliseconds) in settings.at_most.items():
        yield _first_token(name, factor, milliseconds, settings.turns, turns)
    for name in settings.goes_on:
        own = [turn for turn in turns if turn.player == name]
        yield _appended(name, own)
        yield _continued(name, own)
    for name, milliseconds in settings.cpu_at_most.items():
        yield _cpu(name, milliseconds, long_chats.get(name))


def _first_token(name: str, factor: float, milliseconds: float, num_turns: int, turns: Sequence[PlayedTurn]) -> Verdict:
    gate, last = f"{name} first token", range(max(1, num_turns - LAST_TURNS + 1), num_turns + 1)
    formula = (
        f"time to first token, median of the turns {last.start} to {num_turns}: {name} <= {factor:g} x {RUNTIME} + "
        f"{milliseconds:g} ms"
    )
    medians: dict[str, float] = {}
    for player in (name, RUNTIME):
        seconds = [each.time_to_first_token_seconds for each in turns if each.player == player and each.index in last]
        known = [each for each in seconds if each is not None]
        if len(known) < len(last):
            reason = f"{player} has {len(known)} of {counted(len(last), 'first token')} there"
            return Verdict(gate, Outcome.UNDECIDED, formula, reason, {"turns": len(last)})
        medians[player] = median(known)
    bound = factor * medians[RUNTIME] + milliseconds / 1e3
    outcome = Outcome.PASSED if medians[name] <= bound else Outcome.FAILED
    theirs, ours = medians[name] * 1e3, medians[RUNTIME] * 1e3
    reason = f"{theirs:,.1f} ms, at most {factor:g} x {ours:,.1f} ms + {milliseconds:g} ms"
    figures = {"turns": len(last), "factor": factor, "milliseconds": milliseconds, **medians, "bound": bound}
    return Verdict(gate, outcome, formula, reason, figures)


def _appended(name: str, turns: Sequence[PlayedTurn]) -> Verdict:
    """At no turn more than its new tokens, nor fewer."""
    gate, formula = f"{name} appended", f"tokens that {name} appends = new ones, at every turn"
    told = [turn for turn in turns if turn.num_appended_tokens is not None]
    if not told:
        return Verdict(gate, Outcome.UNDECIDED, formula, f"{name} says nothing of what it appends")
    others = [turn for turn in turns if turn.num_appended_tokens != turn.num_new_tokens]
    appended = sum(turn.num_appended_tokens or 0 for turn in turns)
    new = sum(turn.num_new_tokens or 0 for turn in turns)
    reason = f"{appended:,} appended in {counted(len(turns), 'turn')}, {new:,} new"
    more = _named(others, lambda turn: f"{turn.num_appended_tokens} for {turn.num_new_tokens}")
    figures = {"turns": len(turns), "appended": appended, "new": new, "unequal": len(others)}
    return Verdict(gate, Outcome.FAILED if others else Outcome.PASSED, formula, reason + more, figures)


def _continued(name: str, turns: Sequence[PlayedTurn]) -> Verdict:
    gate, formula = f"{name} continued", f"each turn of {name} but the first goes on in its session"
    later = [turn for turn in turns if turn.index > 1]
    if all(turn.session_state is None for turn in later):
        return Verdict(gate, Outcome.UNDECIDED, formula, f"{name} says nothing of its session in later turns")
    others = [turn for turn in later if turn.session_state != "continued"]
    reason = f"{len(later) - len(others):,} of {counted(len(later), 'turn')}"
    more = _named(others, lambda turn: turn.error or f"{turn.session_state} ({turn.session_why})")
    figures = {"turns": len(later), "not_continued": len(others)}
    return Verdict(gate, Outcome.FAILED if others else Outcome.PASSED, formula, reason + more, figures)


def _cpu(name: str, milliseconds: float, found: LongChat | None) -> Verdict:
    gate = f"{name} cpu"
    if found is None or found.error is not None or not found.cpu_seconds:
        formula = f"processor time of {name} for a request of a long chat <= {milliseconds:g} ms"
        reason = "it was not asked" if found is None else found.error or "the time of its process is not known"
        return Verdict(gate, Outcome.UNDECIDED, formula, reason)
    what = f"processor time for {found.num_messages:,} messages, median of {counted(len(found.cpu_seconds), 'request')}"
    return verdict.at_most(gate, what, Seconds(median(found.cpu_seconds)), Seconds(milliseconds / 1e3))


def _named(turns: Sequence[PlayedTurn], what: Callable[[PlayedTurn], str]) -> str:
    """The first of some turns, as the end of a sentence; nothing where there are none."""
    shown = "; ".join(f"turn {turn.index}: {what(turn)}" for turn in turns[:_MOST_NAMED])
    more = f" and {len(turns) - _MOST_NAMED} more" if len(turns) > _MOST_NAMED else ""
    return f". {shown}{more}" if turns else ""
