"""One run of `make bench-engine`, from cold loads to the memory of full sessions."""

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from tests.benchmarks.engine_case import DECODE, PREFILL, Case
from tests.benchmarks.engine_contestants import BFLOAT16, INT8, LLAMA, READ, Entrant
from tests.benchmarks.engine_figures import floor_case
from tests.benchmarks.engine_loading import cold_load, load, serving_memory
from tests.benchmarks.engine_plan import Plan
from tests.benchmarks.engine_process import ContestantProcess
from tests.benchmarks.engine_rounds import Seconds, measured
from tests.benchmarks.logged_command import say

_NUM_LARGE_CHUNK_ROUNDS = 3

Processes = dict[str, ContestantProcess]


@dataclass
class Run:
    """What is done, and what was found.

    Attributes:
        engines: with the model, by name; they are found in each of the following.
        reader: of memory.
        cold, cached: loads.
        opened: what a contestant said of its sessions, by window.
        seconds: of all bursts.
        large_chunk: of Kakeya's prefills in other chunks.
        serving: memory of the largest sessions.
        load_average: of the system before, when it ought to be idle.
    """

    plan: Plan
    engines: dict[str, Entrant]
    reader: Entrant
    cold: dict[str, Any] = field(default_factory=dict)
    cached: dict[str, Any] = field(default_factory=dict)
    opened: dict[int, dict[str, Any]] = field(default_factory=dict)
    seconds: Seconds = field(default_factory=dict)
    large_chunk: Seconds = field(default_factory=dict)
    serving: dict[str, Any] = field(default_factory=dict)
    load_average: float = field(default_factory=lambda: os.getloadavg()[0])
    duration_seconds: float = 0.0

    def play(self) -> None:
        """Measures everything. Raises ContestantFailed."""
        began = time.monotonic()
        for name, entrant in self.engines.items():
            say(f"loading {name}, cold")
            self.cold[name] = cold_load(entrant)
        with ExitStack() as stack:
            processes = self._loaded(stack)
            for window in self.plan.windows:
                self._open(processes, self.plan.cases(window))
                self._measure(processes, self.plan.cases(window))
            self._measure_large_chunk(processes)
        for name, entrant in self.engines.items():
            say(f"looking at the memory of {name}")
            self.serving[name] = serving_memory(entrant, self.largest, self._settings(name))
        self.duration_seconds = time.monotonic() - began

    @property
    def largest(self) -> Case:
        """The sessions with the most keys in all."""
        return Case(DECODE, max(self.plan.num_sessions), max(self.plan.windows))

    def _loaded(self, stack: ExitStack) -> Processes:
        """All contestants' processes, until the stack ends."""
        processes: Processes = {}
        for name, entrant in {**self.engines, READ: self.reader}.items():
            say(f"loading {name}")
            processes[name] = stack.enter_context(entrant.running())
            self.cached[name] = load(processes[name], entrant)
        return processes

    def _open(self, processes: Processes, cases: Sequence[Case]) -> None:
        window = cases[0].window
        self.opened[window] = {}
        for name, entrant in self.engines.items():
            say(f"window {window}: filling sessions of {name}")
            arguments = {"window": window, "cases": [case.fields for case in cases], **entrant.open}
            self.opened[window][name] = processes[name].ask("open", **arguments)

    def _measure(self, processes: Processes, cases: Sequence[Case]) -> None:
        num_rounds, floor = self.plan.num_rounds, floor_case(self.plan)
        self.seconds |= measured(
            processes,
            cases,
            num_rounds=num_rounds,
            burst_seconds=self.plan.burst_seconds,
            takes=lambda name, case: name != READ or case == floor,
            on_round=lambda number: say(f"window {cases[0].window}: round {number + 1} of {num_rounds}"),
        )

    def _measure_large_chunk(self, processes: Processes) -> None:
        say(f"prefill in chunks of {self.plan.large_chunk}")
        window = min(self.plan.windows)
        cases = [case for case in self.plan.cases(window) if case.kind == PREFILL]
        kakeya = {name: processes[name] for name in (INT8, BFLOAT16)}
        for process in kakeya.values():
            process.ask("open", window=window, cases=[case.fields for case in cases], chunk=self.plan.large_chunk)
        self.large_chunk = measured(
            kakeya, cases, num_rounds=_NUM_LARGE_CHUNK_ROUNDS, burst_seconds=self.plan.burst_seconds
        )

    def _settings(self, name: str) -> dict[str, Any]:
        """What llama.cpp found best for `largest`."""
        if name != LLAMA:
            return {}
        return {"settings": {self.largest.name: self.opened[self.largest.window][name]["settings"][self.largest.name]}}
