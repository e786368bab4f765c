"""What a run found, for people and as JSON."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.leavers_http.leaver import Departures
from tests.leavers_http.shim_watch import Holdings
from tests.leavers_http.witness import Witness

# An allocator keeps some; a leak of 64 KB a client would exceed this within the 1,000 clients of a whole run.
MAX_GROWTH_BYTES = 64 << 20
MAX_MORE = 2  # files and threads


@dataclass(frozen=True)
class Report:
    """Attributes:
    remains: what was still there some seconds after the last client left, and what the logs complain of.
    settled_seconds: after the last client left, until nothing was there any more.
    num_expired: sessions that nobody closed, so that their time to live ended them.
    num_noticed: clients of whose leaving the shim knows.
    before: of the shim, warmed up, but before the first client left.
    """

    seed: int
    seconds: float
    departures: Departures
    witness: Witness
    remains: list[str]
    settled_seconds: float
    num_expired: int
    num_noticed: int
    before: Holdings
    after: Holdings

    @property
    def violations(self) -> list[str]:
        found = [f"still there: {what}" for what in self.remains]
        found += self.departures.mistakes
        if self.witness.num_different:
            found.append(f"{self.witness.num_different} answers of the witness differ from its first")
        for what, before, after in (
            ("files", self.before.num_files, self.after.num_files),
            ("threads", self.before.num_threads, self.after.num_threads),
        ):
            if after > before + MAX_MORE:
                found.append(f"the shim had {before} {what}, and has {after}")
        if self.growth_bytes > MAX_GROWTH_BYTES:
            found.append(f"the shim grew by {self.growth_bytes} bytes")
        if self.num_expired:
            found.append(f"{self.num_expired} sessions were left to their time to live")
        if not self.num_noticed:
            found.append("the shim noticed nobody's leaving: this tested nothing")
        return found

    @property
    def growth_bytes(self) -> int:
        return self.after.resident_bytes - self.before.resident_bytes

    def as_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "leavers": sum(self.departures.counts.values()),
            "by_moment": dict(sorted(self.departures.counts.items())),
            "resets": self.departures.num_resets,
            "noticed": self.num_noticed,
            "settled_seconds": round(self.settled_seconds, 2),
            "expired_sessions": self.num_expired,
            "witness_answers": len(self.witness.answers),
            "before": asdict(self.before),
            "after": asdict(self.after),
            "violations": self.violations,
        }

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.as_json(), indent=2) + "\n")

    def show(self, console: Console) -> None:
        facts = self.as_json()
        table = Table("left", "clients", box=None, pad_edge=False)
        for moment, count in facts["by_moment"].items():
            table.add_row(moment, str(count))
        console.print(table)
        console.print(
            f"{facts['leavers']} clients left in {self.seconds:.0f} s, {facts['resets']} of them by a reset, seed "
            f"{self.seed}; the shim noticed {self.num_noticed} before the end of their answers"
        )
        console.print(
            f"nothing was left after {self.settled_seconds:.1f} s; {self.num_expired} sessions were left to their time "
            f"to live; {facts['witness_answers']} answers of the witness"
        )
        console.print(
            f"files {self.before.num_files} -> {self.after.num_files}, threads {self.before.num_threads} -> "
            f"{self.after.num_threads}, memory {self.growth_bytes / 2**20:+.1f} MiB (bound: {MAX_GROWTH_BYTES >> 20})"
        )
        for violation in self.violations:
            console.print(f"VIOLATION: {violation}", markup=False, soft_wrap=True)
        console.print("verdict: " + ("BROKEN" if self.violations else "kept"))
