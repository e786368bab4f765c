"""What a run found, for people and as JSON."""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tests.overload.clients import Experience
from tests.overload.line_watch import LineWatch
from tests.overload.room_watch import RoomWatch
from tests.overload.stretches import Outcome

MISSED_BOUND_SECONDS = 2.0
FORGOTTEN_SECONDS = 8.0  # no machine is busy enough to excuse that
FAIRNESS_BOUND = 1.5  # the modest tenant's mean wait beside the greedy one, as a multiple of that beside its equal


@dataclass(frozen=True)
class Report:
    """Attributes:
    leftovers: what did not add up or was left at the end.
    """

    seed: int
    outcomes: list[Outcome]
    line: LineWatch
    room: RoomWatch
    queue_length: int
    num_lanes: int
    leftovers: list[str]

    @property
    def fairness(self) -> float:
        """See `FAIRNESS_BOUND`; waits counted in sessions that anybody got meanwhile."""
        return _ratio([fmean(outcome.by_tenant["modest"].waits_in_sessions) for outcome in self.outcomes[1:]])

    @property
    def fairness_in_seconds(self) -> float:
        """The same with waits in seconds."""
        return _ratio([fmean(outcome.by_tenant["modest"].waits) for outcome in self.outcomes[1:]])

    @property
    def violations(self) -> list[str]:
        """What no machine excuses."""
        found = [*self.leftovers, *self.line.overtakings, *self.line.injustices]
        found += [mistake for outcome in self.outcomes for e in outcome.by_tenant.values() for mistake in e.mistakes]
        if self.room.longest_line > self.queue_length:
            found.append(f"{self.room.longest_line} waited; at most {self.queue_length} may")
        if self.room.longest_missed_seconds > FORGOTTEN_SECONDS:
            found.append(f"for {self.room.longest_missed_seconds:.1f} s nobody got in beside a free lane")
        if self.fairness > FAIRNESS_BOUND:
            found.append(f"the modest tenant waits for {self.fairness:.2f} times the sessions beside the greedy one")
        return found + self._not_put_to_the_test()

    @property
    def late(self) -> list[str]:
        """What took too long, of a machine that has nothing else to do."""
        found = []
        if self.room.longest_missed_seconds > MISSED_BOUND_SECONDS:
            found.append(f"nobody got in for {self.room.longest_missed_seconds:.2f} s beside a free lane")
        if self.fairness_in_seconds > FAIRNESS_BOUND:
            found.append(f"the modest tenant waits {self.fairness_in_seconds:.2f} times as long beside the greedy one")
        return found

    def _not_put_to_the_test(self) -> list[str]:
        """What must have happened for the rest to mean anything."""
        crowd = self.outcomes[0].by_tenant["load"]
        unmet = {
            "nobody was refused, so nobody honoured RetryInfo": not crowd.refusals,
            "nobody who was refused got in later": max(crowd.num_attempts, default=0) < 2,
            "hardly anybody waited in the line": self.line.num_waited < self.num_lanes,
            "nobody vanished": not all(crowd.ways[way] for way in ("cancels", "times out", "breaks")),
        }
        return [what for what, is_unmet in unmet.items() if is_unmet]

    def as_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "lanes": self.num_lanes,
            "queue_length": self.queue_length,
            "longest_line": self.room.longest_line,
            "samples": self.room.num_samples,
            "longest_missed_seconds": round(self.room.longest_missed_seconds, 3),
            "admitted": self.line.num_admitted,
            "admitted_from_line": self.line.num_waited,
            "fairness": round(self.fairness, 3),
            "fairness_in_seconds": round(self.fairness_in_seconds, 3),
            "stretches": {
                outcome.stretch.name: {
                    tenant: _numbers(experience, outcome.stretch.num_clients[tenant], outcome.seconds)
                    | {"share_of_lanes": round(outcome.share(tenant), 3)}
                    for tenant, experience in outcome.by_tenant.items()
                }
                for outcome in self.outcomes
            },
            "violations": self.violations,
            "late": self.late,
        }

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.as_json(), indent=2) + "\n")

    def show(self, console: Console) -> None:
        facts = self.as_json()
        console.print(_table(facts["stretches"]))
        console.print(
            f"{self.num_lanes} lanes; at most {self.room.longest_line} waited (bound: {self.queue_length}); "
            f"{self.line.num_waited} of {self.line.num_admitted} sessions were reserved out of the line, "
            f"{len(self.line.overtakings)} of them too early; seed {self.seed}"
        )
        console.print(
            f"longest time with a free lane, a waiter, and nobody getting in: {self.room.longest_missed_seconds:.2f} s "
            f"(bound: {MISSED_BOUND_SECONDS:g} s)"
        )
        console.print(
            f"the modest tenant's mean wait beside ten times its clients: {self.fairness:.2f} times that beside its "
            f"equal, counted in sessions, and {self.fairness_in_seconds:.2f} in seconds (bound: {FAIRNESS_BOUND:g})"
        )
        for violation in (*self.violations, *self.late):
            console.print(f"VIOLATION: {violation}", markup=False, soft_wrap=True)
        console.print("verdict: " + ("BROKEN" if self.violations or self.late else "kept"))


def _ratio(symmetric_and_greedy: list[float]) -> float:
    symmetric, greedy = symmetric_and_greedy
    return greedy / symmetric


def _numbers(experience: Experience, num_clients: int, seconds: float) -> dict[str, Any]:
    waits = np.array(experience.waits or [float("nan")]) * 1e3
    p50, p95 = np.percentile(waits, [50, 95])
    return {
        "clients": num_clients,
        "sessions": len(experience.waits),
        "sessions_per_second": round(len(experience.waits) / seconds, 2),
        "wait_ms": {key: round(float(value), 1) for key, value in (("mean", waits.mean()), ("p50", p50), ("p95", p95))},
        "most_attempts": max(experience.num_attempts, default=0),
        "refusals": dict(experience.refusals),
        "ways": dict(experience.ways),
    }


def _table(stretches: dict[str, dict[str, dict[str, Any]]]) -> Table:
    header = (
        "stretch",
        "tenant",
        "clients",
        "sessions",
        "sessions/s",
        "mean wait ms",
        "p50",
        "p95",
        "attempts",
        "share of lanes",
        "refusals",
    )
    table = Table(*header, box=None, pad_edge=False)
    for stretch, tenants in stretches.items():
        for tenant, facts in tenants.items():
            waits = facts["wait_ms"]
            numbers = (facts["clients"], facts["sessions"], facts["sessions_per_second"], waits["mean"], waits["p50"])
            refusals = ", ".join(f"{count} {reason}" for reason, count in facts["refusals"].items())
            rest = (waits["p95"], facts["most_attempts"], facts["share_of_lanes"], refusals)
            table.add_row(stretch, tenant, *map(str, numbers), *map(str, rest))
    return table
