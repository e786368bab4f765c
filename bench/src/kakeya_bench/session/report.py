"""The report of a run: a JSON document, meanwhile and in the end."""

from dataclasses import dataclass
from typing import Any, ClassVar

from kakeya_bench.conversation.turn import Turn
from kakeya_bench.report.verdict import Verdict
from kakeya_bench.session import aggregation, gates
from kakeya_bench.session.gates import Measured


@dataclass(kw_only=True)
class Report(Measured):
    """What a run has found so far."""

    SCHEMA: ClassVar[str] = "kakeya.bench.session/1"

    def verdicts(self) -> list[Verdict]:
        """As in `conversation.report`."""
        return gates.judge(self)

    def found(self) -> dict[str, Any]:
        """As in `conversation.report`."""
        return {
            "gates": {verdict.gate: verdict.document() for verdict in self.verdicts()},
            "agg": aggregation.aggregate(self.turns, self.settings.warm_up_turns),
            "buckets_10min": aggregation.buckets(self.turns),
            "turns": [{name: getattr(turn, name) for name in Turn.__slots__} for turn in self.turns],
        }
