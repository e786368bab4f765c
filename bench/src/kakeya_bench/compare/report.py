"""The report of a run: a JSON document, meanwhile and in the end."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from kakeya_bench.compare import claims
from kakeya_bench.compare.rival import RUNTIME
from kakeya_bench.compare.settings import CompareSettings
from kakeya_bench.compare.turns import LongChat, PlayedTurn
from kakeya_bench.conversation import report
from kakeya_bench.report.verdict import Outcome, Verdict
from kakeya_bench.statistics.distribution import distribution

RIVAL_DTYPE = "float16"
"""Of K and V: llama.cpp's default, and as large as bfloat16, which others keep."""
MARK_TURNS = 5
"""A mark's figures are the medians of so many turns, the last of which is the mark."""


@dataclass(kw_only=True)
class Report(report.Report):
    """What a run has found so far.

    Attributes:
        rival_kv: what a token weighs in `RIVAL_DTYPE`, and why that is not known.
        rss_before: resident memory of each player's server before the first turn, where it is known.
        left_out: players that failed too often, and after which turn; the run is given up where the runtime is one.
        long_chats: what they cost the servers of players that were asked for one.
    """

    SCHEMA: ClassVar[str] = "kakeya.bench.compare/1"

    settings: CompareSettings
    rival_kv: tuple[int | None, str]
    turns: list[PlayedTurn] = field(default_factory=list)
    rss_before: dict[str, int | None] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    long_chats: dict[str, LongChat] = field(default_factory=dict)

    def verdicts(self) -> list[Verdict]:
        """What becomes of each claim."""
        slower = [self._judged(name, factor) for name, factor in self.settings.at_least.items()]
        return [*slower, *claims.of_chats(self.settings, self.turns, self.long_chats)]

    def found(self) -> dict[str, Any]:
        weight, why_not = self.rival_kv
        rivals = [self._player(each.name, each.plays_every_turn, each.document()) for each in self.settings.rival]
        return {
            "rival_kv": {"dtype": RIVAL_DTYPE, "bytes_per_token": weight, "why_not": why_not},
            "marks": list(self.settings.marks),
            "turns_to_a_mark": MARK_TURNS,
            "players": [self._player(RUNTIME, True, {"kind": "runtime"}), *rivals],
            "claims": {verdict.gate: verdict.document() for verdict in self.verdicts()},
            "turns": [asdict(turn) for turn in self.turns],
        }

    def _player(self, name: str, plays_every_turn: bool, facts: Mapping[str, object]) -> dict[str, Any]:
        turns = [turn for turn in self.turns if turn.player == name]
        succeeded = [turn for turn in turns if turn.error is None]
        failed = [turn for turn in turns if turn.error is not None]
        is_whole = len(succeeded) == self.settings.turns
        return {
            "name": name,
            **facts,
            "plays_every_turn": plays_every_turn,
            "left_out_after_turn": self.left_out.get(name),
            "num_turns": len(turns),
            "num_errors": len(failed),
            "first_error": f"turn {failed[0].index}: {failed[0].error}" if failed else None,
            "marks": {str(mark): self._at_mark(name, mark) for mark in self.settings.marks},
            "conversation_s": _sum(turn.total_seconds for turn in succeeded) if is_whole else None,
            "time_to_first_token_s": distribution(turn.time_to_first_token_seconds for turn in succeeded),
            "turn_s": distribution(turn.total_seconds for turn in succeeded),
            "num_sent_tokens": sum(turn.num_sent_tokens for turn in succeeded),
            "num_cached_tokens": _sum(turn.num_cached_tokens for turn in succeeded),
            "num_new_tokens": _sum(turn.num_new_tokens for turn in succeeded),
            "num_appended_tokens": _sum(turn.num_appended_tokens for turn in succeeded),
            "num_continued_turns": _sum(_continued(turn) for turn in turns),
            "client_s": distribution(turn.client_seconds for turn in succeeded),
            "long_chat": asdict(self.long_chats[name]) if name in self.long_chats else None,
            "num_dropping_turns": sum(turn.num_dropped_tokens > 0 for turn in succeeded),
            "num_unknown_answers": sum(not turn.knows_answer for turn in succeeded) if plays_every_turn else None,
            "rss_bytes": _sizes([self.rss_before.get(name), *(turn.rss_bytes for turn in turns)]),
            "kv_live_bytes": _sizes([turn.kv_live_bytes for turn in succeeded]),
            "kv_computed_bytes": _sizes([turn.kv_computed_bytes for turn in succeeded]),
        }

    def _at_mark(self, name: str, mark: int) -> dict[str, Any] | None:
        """Medians of a player's turns that end there; None where its turn at the mark failed, or was not played.

        Of a player of marks alone, the turn at the mark stands alone.
        """
        plays_marks = any(name == each.name and not each.plays_every_turn for each in self.settings.rival)
        first = mark if plays_marks else mark - MARK_TURNS + 1
        played = [turn for turn in self.turns if turn.player == name and first <= turn.index <= mark]
        succeeded = [turn for turn in played if turn.error is None]
        if all(turn.index != mark for turn in succeeded):
            return None
        first_token = distribution(turn.time_to_first_token_seconds for turn in succeeded)
        whole = distribution(turn.total_seconds for turn in succeeded)
        return {
            "time_to_first_token_s": first_token and first_token["p50"],
            "turn_s": whole and whole["p50"],
            "num_turns": len(succeeded),
        }

    def _judged(self, name: str, factor: float) -> Verdict:
        """At the last mark, a rival's time to first token is at least so many times the runtime's."""
        mark = self.settings.marks[-1]
        formula = f"time to first token at turn {mark}: {name} / {RUNTIME} >= {factor:g}"
        theirs, ours = ((self._at_mark(each, mark) or {}).get("time_to_first_token_s") for each in (name, RUNTIME))
        figures = {"turn": mark, "at_least": factor, name: theirs, RUNTIME: ours}
        if not theirs or not ours:
            reason = f"{name if not theirs else RUNTIME} has no time to first token at turn {mark}"
            return Verdict(name, Outcome.UNDECIDED, formula, reason, figures)
        ratio = theirs / ours
        outcome = Outcome.PASSED if ratio >= factor else Outcome.FAILED
        reason = f"{theirs * 1e3:,.1f} ms / {ours * 1e3:,.1f} ms = {ratio:.1f}"
        return Verdict(name, outcome, formula, reason, {**figures, "ratio": ratio})


def _continued(turn: PlayedTurn) -> bool | None:
    return None if turn.session_state is None else turn.session_state == "continued"


def _sizes(values: Sequence[int | None]) -> dict[str, int | None] | None:
    """The first and the last, as far as they are known, and the largest; None of none."""
    known = [value for value in values if value is not None]
    return {"start": values[0], "end": values[-1], "max": max(known)} if known else None


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
