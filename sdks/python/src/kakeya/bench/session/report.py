"""The report of a run: a JSON document, meanwhile and in the end."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from kakeya.bench.environment import environment
from kakeya.bench.facts import Facts
from kakeya.bench.session import aggregation, gates
from kakeya.bench.session.gates import Measured
from kakeya.bench.session.options import Options
from kakeya.bench.turn import Turn
from kakeya.bench.verdict import Verdict

SCHEMA = "kakeya.bench.session/1"


@dataclass
class Report:
    """What a run has found so far.

    Attributes:
        state: running, complete, interrupted, or given_up where turn after turn failed.
    """

    options: Options
    facts: Facts
    turns: list[Turn] = field(default_factory=list)
    state: str = "running"
    next_tokens: tuple[list[int], list[int]] | None = None
    why_not_exact: str = ""
    why_not_rss: str = ""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    _environment: Mapping[str, object] = field(default_factory=environment)

    def verdicts(self, turns: Sequence[Turn] | None = None) -> list[Verdict]:
        """What each gate says of the turns; None for all so far."""
        measured = Measured(
            turns=self.turns if turns is None else turns,
            num_warm_up_turns=self.options.num_warm_up_turns,
            bytes_per_token=self.facts.bytes_per_token,
            why_not=self.facts.why_not,
            next_tokens=self.next_tokens,
            why_not_exact=self.why_not_exact,
            why_not_rss=self.why_not_rss,
        )
        return gates.judge(measured, self.options.skipped)

    def document(self) -> dict[str, Any]:
        """Everything, as plain values for JSON. May run in another thread while turns are added."""
        turns = list(self.turns)
        return {
            "schema": SCHEMA,
            "state": self.state,
            "started_at": self.started_at.isoformat(timespec="seconds"),
            "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "options": _options(self.options),
            "environment": dict(self._environment),
            "model": self.facts.document(),
            "gates": {verdict.gate: _verdict(verdict) for verdict in self.verdicts(turns)},
            "agg": aggregation.aggregate(turns, self.options.num_warm_up_turns),
            "buckets_10min": aggregation.buckets(turns),
            "turns": [{name: getattr(turn, name) for name in Turn.__slots__} for turn in turns],
        }


def _verdict(verdict: Verdict) -> dict[str, object]:
    return {
        "outcome": verdict.outcome.value,
        "formula": verdict.formula,
        "reason": verdict.reason,
        "figures": dict(verdict.figures),
    }


def _options(options: Options) -> dict[str, object]:
    asked = asdict(options.conversation)
    return {
        **{name: str(value) if name == "prompts" and value else value for name, value in asked.items()},
        "num_sessions": options.num_sessions,
        "num_turns": options.num_turns,
        "duration_seconds": options.duration_seconds,
        "turn_spacing_seconds": options.turn_spacing_seconds,
        "num_warm_up_turns": options.num_warm_up_turns,
    }
