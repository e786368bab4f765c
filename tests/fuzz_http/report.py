"""What a run found, for people and as JSON."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.fuzz_http.tally import Tally


@dataclass(frozen=True)
class Report:
    seed: int
    seconds: float
    tally: Tally

    @property
    def passed(self) -> bool:
        return not self.tally.num_violations

    def as_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "cases": self.tally.num_cases,
            "seconds": round(self.seconds, 1),
            "by_kind": dict(self.tally.kinds.most_common()),
            "by_status": dict(self._by_status().most_common()),
            "by_operation": {name: dict(count) for name, count in sorted(self.tally.statuses.items())},
            "violations": self.tally.violations,
            "num_violations": self.tally.num_violations,
        }

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.as_json(), indent=2) + "\n")

    def show(self, console: Console) -> None:
        console.print(self._table())
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.tally.kinds.most_common())
        console.print(f"{self.tally.num_cases} cases ({kinds}) in {self.seconds:.0f} s, seed {self.seed}")
        for violation in self.tally.violations:
            console.print(f"VIOLATION: {violation}", markup=False, soft_wrap=True)
        verdict = "kept" if self.passed else f"BROKEN, {self.tally.num_violations} violations"
        console.print(f"verdict: {verdict}")

    def _by_status(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for count in self.tally.statuses.values():
            total.update(count)
        return total

    def _table(self) -> Table:
        statuses = sorted(self._by_status())
        table = Table("operation", *statuses, box=None, pad_edge=False)
        for column in table.columns[1:]:
            column.justify = "right"
        for operation, count in sorted(self.tally.statuses.items()):
            table.add_row(operation, *(str(count[status] or "") for status in statuses))
        return table
