"""What a run found, for people and as JSON."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from tests.overload_http.clients import Experience
from tests.overload_http.place_watch import PlaceWatch

# From the end of its wait to what a refused client reads; the machine may be busy with the others' answers.
REFUSAL_SLACK_SECONDS = 0.5


@dataclass(frozen=True)
class Report:
    """Attributes:
    alone: of as many clients as there are places: no request waited, and all lanes were busy.
    overloaded: of four times as many.
    remains: what was left at the end, and what the logs complain of.
    """

    alone: Experience
    overloaded: Experience
    watch: PlaceWatch
    num_places: int
    queue_length: int
    max_wait_seconds: float
    remains: list[str]

    @property
    def bound_seconds(self) -> float:
        """Of the 99th percentile of accepted requests: the longest wait, and what an answer takes beside others."""
        return self.max_wait_seconds + _percentile(self.alone.seconds, 99)

    @property
    def violations(self) -> list[str]:
        """What no machine excuses."""
        found = [f"left over: {what}" for what in self.remains]
        found += self.alone.mistakes + self.overloaded.mistakes
        if self.watch.longest_line > self.queue_length:
            found.append(f"{self.watch.longest_line} waited; at most {self.queue_length} may")
        if self.watch.most_in_flight > self.num_places:
            found.append(f"{self.watch.most_in_flight} were worked on; at most {self.num_places} may")
        return found + self._not_put_to_the_test()

    @property
    def late(self) -> list[str]:
        """What took too long, of a machine that has nothing else to do."""
        found = []
        if (slow := _percentile(self.overloaded.seconds, 99)) > self.bound_seconds:
            found.append(f"p99 of accepted requests is {slow:.2f} s (bound: {self.bound_seconds:.2f} s)")
        if (longest := max(self.overloaded.refusal_seconds, default=0.0)) > self._refusal_bound_seconds:
            found.append(f"a refusal took {longest:.2f} s (bound: {self._refusal_bound_seconds:.2f} s)")
        return found

    @property
    def _refusal_bound_seconds(self) -> float:
        return self.max_wait_seconds + REFUSAL_SLACK_SECONDS

    def _not_put_to_the_test(self) -> list[str]:
        """What must have happened for the rest to mean anything."""
        unmet = {
            "somebody was refused although there were places": set(self.alone.statuses) != {200},
            "nobody was refused, so nobody honoured Retry-After": not self.overloaded.refusal_seconds,
            "nobody who was refused got in later": max(self.overloaded.num_attempts, default=0) < 2,
            "the line was never full": self.watch.longest_line < self.queue_length,
        }
        return [what for what, is_unmet in unmet.items() if is_unmet]

    def as_json(self) -> dict[str, Any]:
        return {
            "places": self.num_places,
            "queue_length": self.queue_length,
            "queue_max_wait_seconds": self.max_wait_seconds,
            "longest_line": self.watch.longest_line,
            "most_in_flight": self.watch.most_in_flight,
            "samples": self.watch.num_samples,
            "alone": _numbers(self.alone),
            "overloaded": _numbers(self.overloaded),
            "bound_seconds": round(self.bound_seconds, 3),
            "longest_refusal_seconds": round(max(self.overloaded.refusal_seconds, default=0.0), 3),
            "most_attempts": max(self.overloaded.num_attempts, default=0),
            "violations": self.violations,
            "late": self.late,
        }

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.as_json(), indent=2) + "\n")

    def show(self, console: Console) -> None:
        facts = self.as_json()
        for name in ("alone", "overloaded"):
            numbers = facts[name]
            console.print(
                f"{name:10} {numbers['statuses']}; accepted in p50 {numbers['p50_seconds']:.2f} s, "
                f"p99 {numbers['p99_seconds']:.2f} s"
            )
        console.print(
            f"bound of p99: {self.bound_seconds:.2f} s = {self.max_wait_seconds:g} s of waiting + p99 with all "
            f"{self.num_places} places taken and nobody waiting"
        )
        console.print(
            f"at most {self.watch.longest_line} waited (bound: {self.queue_length}) and {self.watch.most_in_flight} "
            f"were worked on (bound: {self.num_places}); the longest refusal took "
            f"{facts['longest_refusal_seconds']:.2f} s (bound: {self._refusal_bound_seconds:g} s); who came back when "
            f"told to got in after {facts['most_attempts']} attempts at most"
        )
        for violation in (*self.violations, *self.late):
            console.print(f"VIOLATION: {violation}", markup=False, soft_wrap=True)
        console.print("verdict: " + ("BROKEN" if self.violations or self.late else "kept"))


def _percentile(seconds: list[float], percent: float) -> float:
    return float(np.percentile(seconds, percent)) if seconds else float("nan")


def _numbers(experience: Experience) -> dict[str, Any]:
    return {
        "statuses": {str(status): count for status, count in sorted(experience.statuses.items())},
        "p50_seconds": round(_percentile(experience.seconds, 50), 3),
        "p99_seconds": round(_percentile(experience.seconds, 99), 3),
    }
