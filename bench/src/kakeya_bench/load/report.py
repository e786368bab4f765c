"""The report of a sweep: a JSON document, meanwhile and in the end."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from kakeya_bench.conversation.facts import Facts
from kakeya_bench.load import gates
from kakeya_bench.load.aggregation import aggregate, largest_within
from kakeya_bench.load.level import Level
from kakeya_bench.load.settings import LoadSettings
from kakeya_bench.report.environment import environment
from kakeya_bench.report.verdict import Verdict

SCHEMA = "kakeya.bench.load/1"


@dataclass(kw_only=True)
class Report:
    """What a sweep has found so far.

    Attributes:
        facts: None before the first session is open.
        state: running, complete, interrupted, or broken_off where the sessions of a level could not be opened.
        why_broken_off: "" where it is not.
    """

    settings: LoadSettings
    facts: Facts | None = None
    levels: list[Level] = field(default_factory=list)
    state: str = "running"
    why_broken_off: str = ""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    environment: Mapping[str, object] = field(default_factory=environment)

    def verdicts(self) -> list[Verdict]:
        """What each gate says."""
        return gates.judge(self.levels, self.settings)

    def document(self) -> dict[str, Any]:
        """Everything, as plain values for JSON."""
        settings = self.settings
        return {
            "schema": SCHEMA,
            "state": self.state,
            "why_broken_off": self.why_broken_off,
            "started_at": self.started_at.isoformat(timespec="seconds"),
            "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "options": settings.document(),
            "environment": dict(self.environment),
            "model": self.facts.document() if self.facts else None,
            "gates": {verdict.gate: verdict.document() for verdict in self.verdicts()},
            "largest_num_sessions_within_limits": largest_within(self.levels, settings),
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
