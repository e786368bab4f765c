"""What a run has found so far: the base of what each bench of a running stack reports."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

from kakeya_bench.conversation.settings import RuntimeSettings
from kakeya_bench.conversation.speech import Facts
from kakeya_bench.report.environment import environment
from kakeya_bench.report.verdict import Verdict


@dataclass(kw_only=True)
class Report(ABC):
    """A JSON document, meanwhile and in the end.

    Attributes:
        SCHEMA: of the document.
        facts: None before the first session is open.
        state: running, complete, interrupted, given_up where turn after turn failed, or broken_off where sessions could
            not be opened.
    """

    SCHEMA: ClassVar[str]

    settings: RuntimeSettings
    facts: Facts | None = None
    state: str = "running"
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    environment: Mapping[str, object] = field(default_factory=environment)

    @abstractmethod
    def verdicts(self) -> list[Verdict]:
        """What each gate says."""

    @abstractmethod
    def found(self) -> dict[str, Any]:
        """What the bench itself puts into the document."""

    def document(self) -> dict[str, Any]:
        """Everything, as plain values for JSON."""
        return {
            "schema": self.SCHEMA,
            "state": self.state,
            "started_at": self.started_at.isoformat(timespec="seconds"),
            "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "options": self.settings.document(),
            "environment": dict(self.environment),
            "model": self.facts.document() if self.facts else None,
            **self.found(),
        }
