"""What became of the calls."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

# A status that no call may have, whatever it asked for: both mean that nobody foresaw what happened.
FORBIDDEN = ("INTERNAL", "UNKNOWN")
_MAX_SHOWN = 3


@dataclass
class Tally:
    """Attributes:
    statuses: calls by method and status.
    kinds: calls by how their request was made.
    violations: what must not have happened, with what is needed to see it again; the first few of each kind.
    num_violations: all of them.
    """

    statuses: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    kinds: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    num_violations: int = 0
    _shown: Counter[str] = field(default_factory=Counter)

    @property
    def num_calls(self) -> int:
        return sum(sum(by_status.values()) for by_status in self.statuses.values())

    def count(self, method: str, status: str, kind: str) -> None:
        self.statuses[method][status] += 1
        self.kinds[kind] += 1

    def violate(self, what: str, kind: str = "") -> None:
        self.num_violations += 1
        self._shown[kind] += 1
        if self._shown[kind] <= _MAX_SHOWN:
            self.violations.append(what)

    def by_status(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for by_status in self.statuses.values():
            total.update(by_status)
        return total
