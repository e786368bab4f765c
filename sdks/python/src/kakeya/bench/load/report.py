"""The report of a sweep: a JSON document, meanwhile and in the end."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from kakeya.bench.environment import environment
from kakeya.bench.facts import Facts
from kakeya.bench.load import gates
from kakeya.bench.load.aggregation import aggregate, largest_within
from kakeya.bench.load.level import Level
from kakeya.bench.load.options import Options
from kakeya.bench.verdict import Verdict

SCHEMA = "kakeya.bench.load/1"
JSON_NAME = "load.json"


@dataclass
class Report:
    """What a sweep has found so far.

    Attributes:
        facts: None before the first session is open.
        state: running, complete, interrupted, or broken_off where the sessions of a level could not be opened.
        why_broken_off: "" where it is not.
    """

    options: Options
    facts: Facts | None = None
    levels: list[Level] = field(default_factory=list)
    state: str = "running"
    why_broken_off: str = ""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    _environment: Mapping[str, object] = field(default_factory=environment)

    def verdicts(self) -> list[Verdict]:
        """What each gate says."""
        return gates.judge(self.levels, self.options)

    def document(self) -> dict[str, Any]:
        """Everything, as plain values for JSON."""
        options = self.options
        return {
            "schema": SCHEMA,
            "state": self.state,
            "why_broken_off": self.why_broken_off,
            "started_at": self.started_at.isoformat(timespec="seconds"),
            "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "options": _options(options),
            "environment": dict(self._environment),
            "model": self.facts.document() if self.facts else None,
            "gates": {verdict.gate: _verdict(verdict) for verdict in self.verdicts()},
            "largest_num_sessions_within_limits": largest_within(self.levels, options.limits, options.goal_share),
            "levels": [_level(level, options) for level in self.levels],
        }


def _verdict(verdict: Verdict) -> dict[str, object]:
    return {
        "outcome": verdict.outcome.value,
        "formula": verdict.formula,
        "reason": verdict.reason,
        "figures": dict(verdict.figures),
    }


def _level(level: Level, options: Options) -> dict[str, object]:
    return {
        "num_sessions": level.num_sessions,
        "num_opened": level.num_opened,
        "refusal": level.refusal,
        "state": level.state.value,
        "why_not_closed": level.why_not_closed,
        **aggregate(level, options.limits),
        "kv": asdict(level.kv) if level.kv else None,
        "turns": [asdict(turn) for turn in level.turns],
    }


def _options(options: Options) -> dict[str, object]:
    asked = asdict(options.conversation)
    return {
        **{name: str(value) if name == "prompts" and value else value for name, value in asked.items()},
        "numbers_of_sessions": list(options.numbers_of_sessions),
        "warm_up_seconds": options.warm_up_seconds,
        "duration_seconds": options.duration_seconds,
        "think_time_seconds": options.think_time_seconds,
        "limits": asdict(options.limits),
        "goal_share": options.goal_share,
        "judges_goodput": options.judges_goodput,
    }
