"""The report of a run: a JSON document, meanwhile and in the end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kakeya_bench.conversation.turn import Turn
from kakeya_bench.report.environment import environment
from kakeya_bench.report.verdict import Verdict
from kakeya_bench.session import aggregation, gates
from kakeya_bench.session.gates import Measured

SCHEMA = "kakeya.bench.session/1"


@dataclass(kw_only=True)
class Report(Measured):
    """What a run has found so far.

    Attributes:
        state: running, complete, interrupted, or given_up where turn after turn failed.
    """

    state: str = "running"
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    environment: Mapping[str, object] = field(default_factory=environment)

    def verdicts(self) -> list[Verdict]:
        """What each gate says."""
        return gates.judge(self)

    def document(self) -> dict[str, Any]:
        """Everything, as plain values for JSON."""
        return {
            "schema": SCHEMA,
            "state": self.state,
            "started_at": self.started_at.isoformat(timespec="seconds"),
            "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "options": self.settings.document(),
            "environment": dict(self.environment),
            "model": self.facts.document(),
            "gates": {verdict.gate: verdict.document() for verdict in self.verdicts()},
            "agg": aggregation.aggregate(self.turns, self.settings.warm_up_turns),
            "buckets_10min": aggregation.buckets(self.turns),
            "turns": [{name: getattr(turn, name) for name in Turn.__slots__} for turn in self.turns],
        }
