"""One run, from cold loads to the memory of full sessions."""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kakeya_bench.engine import contestants, memory_read
from kakeya_bench.engine.contestants import (
    BFLOAT16,
    FAR,
    INT8,
    LLAMA,
    LLAMA_Q8_KV,
    READ,
    Contestant,
    Entrant,
    cold_load,
)
from kakeya_bench.engine.plan import DECODE, PREFILL, Case, Plan
from kakeya_bench.rivals import llama_cpp
from kakeya_bench.rivals.command import say
from kakeya_bench.statistics.distribution import median

Seconds = dict[str, dict[str, list[list[float]]]]
"""By the case's and the contestant's name: of each round the seconds of a burst."""

_LEAST_TIMES = {DECODE: 3}
_MOST_TIMES = 30
_NUM_WARM_TIMES = 2
_SETTLE_SECONDS = 0.02  # threads of the one before spin for some milliseconds before they sleep
_NUM_LARGE_CHUNK_ROUNDS = 3
_NUM_SERVING_STEPS = 3


def measured(contestants: Mapping[Case, Mapping[str, Contestant]], num_rounds: int, burst_seconds: float) -> Seconds:
    """Measures the contestants of each case once a round, after a round that does not count. Raises CallFailed."""
    num_times = {
        (case, name): burst_length(case, median(_burst(each, case, _NUM_WARM_TIMES)), burst_seconds)
        for case, by_name in contestants.items()
        for name, each in by_name.items()
    }
    seconds: Seconds = {case.name: {name: [] for name in by_name} for case, by_name in contestants.items()}
    for number in range(num_rounds):
        say(f"window {next(iter(contestants)).window}: round {number + 1} of {num_rounds}")
        for case, by_name in contestants.items():
            for name in order(list(by_name), number):
                seconds[case.name][name].append(_burst(by_name[name], case, num_times[case, name]))
    return seconds


def burst_length(case: Case, seconds: float, burst_seconds: float) -> int:
    """How often a case is measured in a burst where it takes so many seconds."""
    return min(max(round(burst_seconds / seconds), _LEAST_TIMES.get(case.kind, 1)), _MOST_TIMES)


def order(names: Sequence[str], number: int) -> list[str]:
    """Of the contestants in a round: nobody always comes after the same one, or first."""
    first = number % len(names)
    rotated = [*names[first:], *names[:first]]
    return rotated[::-1] if number % 2 else rotated


def _burst(contestant: Contestant, case: Case, num_times: int) -> list[float]:
    time.sleep(_SETTLE_SECONDS)
    return contestant.measure(case, num_times)


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

    def play(self, on_part: "Callable[[Run], None]") -> None:
        """Measures everything. Raises CallFailed.

        Args:
            on_part: told of the run after each window.
        """
        began = time.monotonic()
        for name, entrant in self.engines.items():
            say(f"loading {name}, cold")
            self.cold[name] = cold_load(entrant)
        with ExitStack() as stack:
            loaded = {name: self._loaded(stack, entrant) for name, entrant in self.engines.items()}
            reader = self._loaded(stack, self.reader)
            for window in self.plan.windows:
                self._measure(loaded, reader, self.plan.cases(window))
                on_part(self)
            self._measure_large_chunk({name: loaded[name] for name in (INT8, BFLOAT16)})
        with ExitStack() as stack:  # the others' sessions are gone
            far = {name: self._loaded(stack, entrant) for name, entrant in self.engines.items() if name in FAR}
            self._open(far, self.plan.far_cases, as_near=True)
            cases = dict.fromkeys(self.plan.far_cases, far)
            self.seconds |= measured(cases, self.plan.num_far_rounds, self.plan.burst_seconds)
        on_part(self)
        for name, entrant in self.engines.items():
            say(f"looking at the memory of {name}")
            self.serving[name] = self._serving(entrant)
        self.duration_seconds = time.monotonic() - began

    def _loaded(self, stack: ExitStack, entrant: Entrant) -> Contestant:
        """Until the stack ends."""
        say(f"loading {entrant.name}")
        contestant = stack.enter_context(entrant.running())
        self.cached[entrant.name] = contestant.load()
        return contestant

    def _measure(self, loaded: dict[str, Contestant], reader: Contestant, cases: Sequence[Case]) -> None:
        """The cases of one window."""
        self._open(loaded, cases)
        everybody = {case: {**loaded, READ: reader} if case == self.plan.floor_case else loaded for case in cases}
        self.seconds |= measured(everybody, self.plan.num_rounds, self.plan.burst_seconds)

    def _open(self, loaded: Mapping[str, Contestant], cases: Sequence[Case], *, as_near: bool = False) -> None:
        """
        Args:
            as_near: llama.cpp has the settings that were its best for the same in the largest of the other windows. To
                try all of them there takes an hour.
        """
        window = cases[0].window
        self.opened[window] = {}
        for name, contestant in loaded.items():
            say(f"window {window}: filling sessions of {name}")
            is_settled = as_near and name in (LLAMA, LLAMA_Q8_KV)
            settings = {"settings": {case.name: self._best_near(name, case) for case in cases}} if is_settled else {}
            self.opened[window][name] = contestant.open(cases, **settings)

    def _best_near(self, name: str, case: Case) -> Any:
        near = max(self.plan.windows)
        return self.opened[near][name]["settings"][replace(case, window=near).name]

    def _measure_large_chunk(self, kakeya: dict[str, Contestant]) -> None:
        say(f"prefill in chunks of {self.plan.large_chunk}")
        cases = [case for case in self.plan.cases(min(self.plan.windows)) if case.kind == PREFILL]
        for contestant in kakeya.values():
            contestant.open(cases, chunk=self.plan.large_chunk)
        self.large_chunk = measured(dict.fromkeys(cases, kakeya), _NUM_LARGE_CHUNK_ROUNDS, self.plan.burst_seconds)

    def _serving(self, entrant: Entrant) -> dict[str, Any]:
        """The memory of a process that decodes full sessions; what it took to fill them is not in it."""
        case = self.plan.largest
        found = self.opened[case.window][entrant.name]
        best = {"settings": {case.name: found["settings"][case.name]}} if entrant.name in (LLAMA, LLAMA_Q8_KV) else {}
        with entrant.running() as contestant:
            contestant.load()
            contestant.open([case], **best)
            return contestant.serving_memory(case, _NUM_SERVING_STEPS)


def played(plan: Plan, kept: Path, on_part: Callable[[Run], None]) -> Run:
    """A run that is over.

    Args:
        kept: where the weights stay between runs, on a disk: int8 weights are kept beside them during one.
        on_part: told of the run after each window.

    Raises:
        RivalFailed: a contestant could not be built, or did not do what it was told.
    """
    from kakeya_bench.rivals import checkpoint  # it brings torch

    llama_cpp.prepare()
    name = hashlib.sha256(json.dumps(plan.shape, sort_keys=True).encode()).hexdigest()[:12]
    model = checkpoint.kept(kept / name, plan.shape, "bfloat16")
    directory = kept / "run"
    shutil.rmtree(directory, ignore_errors=True)  # of a run that was killed
    directory.mkdir(parents=True)
    try:
        engines = contestants.engines(
            model, model / checkpoint.GGUF, plan, directory / "cache", llama_cpp.BINDING.packages
        )
        num_bytes = memory_read.int8_weight_bytes(json.loads((model / "config.json").read_text()))
        reader = memory_read.entrant(num_bytes, plan, directory)
        run = Run(plan, {entrant.name: entrant for entrant in engines}, reader)
        run.play(on_part)
    finally:
        shutil.rmtree(directory)
    return run
