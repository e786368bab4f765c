"""What became of the cases."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

_MAX_SHOWN = 5


@dataclass
class Tally:
    """Attributes:
    statuses: cases by operation and what they got.
    kinds: cases by how they were made.
    violations: what must not have happened, the first few of each kind.
    num_violations: all of them.
    """

    statuses: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    kinds: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    num_violations: int = 0
    _shown: Counter[str] = field(default_factory=Counter)

    @property
    def num_cases(self) -> int:
        return sum(self.kinds.values())

    def count(self, operation: str, status: str, kind: str) -> None:
        self.statuses[operation][status] += 1
        self.kinds[kind] += 1

    def violate(self, kind: str, what: str = "") -> None:
        self.num_violations += 1
        self._shown[kind] += 1
        if self._shown[kind] <= _MAX_SHOWN:
            self.violations.append(f"{kind}: {what}" if what else kind)
