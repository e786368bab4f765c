"""The report of a sweep: a JSON document, meanwhile and in the end."""

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from kakeya_bench.conversation import report
from kakeya_bench.load import gates
from kakeya_bench.load.aggregation import aggregate, largest_within
from kakeya_bench.load.level import Level
from kakeya_bench.load.settings import LoadSettings
from kakeya_bench.report.verdict import Verdict


@dataclass(kw_only=True)
class Report(report.Report):
    """What a sweep has found so far.

    Attributes:
        why_broken_off: "" where it is not.
    """

    SCHEMA: ClassVar[str] = "kakeya.bench.load/1"

    settings: LoadSettings
    levels: list[Level] = field(default_factory=list)
    why_broken_off: str = ""

    def verdicts(self) -> list[Verdict]:
        """As in `conversation.report`."""
        return gates.judge(self.levels, self.settings)

    def found(self) -> dict[str, Any]:
        """As in `conversation.report`."""
        return {
            "why_broken_off": self.why_broken_off,
            "gates": {verdict.gate: verdict.document() for verdict in self.verdicts()},
            "largest_num_sessions_within_limits": largest_within(self.levels, self.settings),
            "levels": [self._level(level) for level in self.levels],
        }

    def _level(self, level: Level) -> dict[str, object]:
        return {
            "num_sessions": level.num_sessions,
            "num_opened": level.num_opened,
            "refusal": level.refusal,
            "state": level.state.value,
            "why_not_closed": next(iter(level.not_closed), ""),
            **aggregate(level, self.settings),
            "kv": asdict(level.kv) if level.kv else None,
            "turns": [asdict(turn) for turn in level.turns],
        }
