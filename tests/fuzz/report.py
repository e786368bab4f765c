"""What a run found, for people and as JSON."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.fuzz.tally import Tally

# An allocator that has seen messages of some MiB keeps some of it; a leak of 1 KB a call would exceed this bound within
# the 100,000 calls of a whole run.
MAX_GROWTH_BYTES = 96 << 20


@dataclass(frozen=True)
class Report:
    """Attributes:
    num_witness_refusals: sessions that the witness had to ask for again because all lanes were taken.
    resident_bytes_before: by process, after the first batch.
    most_redis_keys: after any batch.
    """

    seed: int
    seconds: float
    tally: Tally
    num_witness_turns: int
    num_witness_refusals: int
    resident_bytes_before: dict[str, int]
    resident_bytes_after: dict[str, int]
    most_redis_keys: int

    @property
    def passed(self) -> bool:
        return not self.tally.num_violations

    @property
    def growth_bytes(self) -> dict[str, int]:
        return {name: size - self.resident_bytes_before[name] for name, size in self.resident_bytes_after.items()}

    def as_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "calls": self.tally.num_calls,
            "seconds": round(self.seconds, 1),
            "calls_per_second": round(self.tally.num_calls / self.seconds, 1),
            "by_status": dict(self.tally.by_status().most_common()),
            "by_kind": dict(self.tally.kinds.most_common()),
            "by_method": {name: dict(count) for name, count in sorted(self.tally.statuses.items())},
            "witness_turns": self.num_witness_turns,
            "witness_refusals": self.num_witness_refusals,
            "resident_bytes_growth": self.growth_bytes,
            "resident_bytes_after": self.resident_bytes_after,
            "most_redis_keys": self.most_redis_keys,
            "violations": self.tally.violations,
            "num_violations": self.tally.num_violations,
        }

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.as_json(), indent=2) + "\n")

    def show(self, console: Console) -> None:
        console.print(_status_table(self.tally))
        facts = self.as_json()
        console.print(
            f"{facts['calls']} calls in {facts['seconds']} s ({facts['calls_per_second']}/s), seed {self.seed}; "
            f"{self.num_witness_turns} turns of the witness; at most {self.most_redis_keys} keys in Redis"
        )
        for name, growth in self.growth_bytes.items():
            console.print(f"{name} grew by {growth / 2**20:.1f} MiB (bound: {MAX_GROWTH_BYTES >> 20} MiB)")
        for violation in self.tally.violations:
            console.print(f"VIOLATION: {violation}", markup=False, soft_wrap=True)
        verdict = "kept" if self.passed else f"BROKEN, {self.tally.num_violations} violations"
        console.print(f"verdict: {verdict}")


def _status_table(tally: Tally) -> Table:
    statuses = [status for status, _ in tally.by_status().most_common()]
    table = Table("method", *statuses, box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for method, count in sorted(tally.statuses.items()):
        table.add_row(method.rpartition(".")[2], *(str(count[status] or "") for status in statuses))
    return table
