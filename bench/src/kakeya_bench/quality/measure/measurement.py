"""Measures one mode of the weights in its configurations."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

import numpy as np

from kakeya_bench.quality.material.dialogue import Losses, Text
from kakeya_bench.quality.material.material import Material
from kakeya_bench.quality.material.script import Outcome, Script
from kakeya_bench.quality.measure.stage import Stage
from kakeya_bench.quality.plan import SMALLEST_CHUNK, Configuration, Kind, Plan, num_lanes
from kakeya_bench.report.progress import Progress
from kakeya_shared.errors.tree import InvalidField
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.verifier import ModelFacts, Verifier

T = TypeVar("T")

_FULL_ATTENTION_POLICY = "sink-window"  # inside its window nothing is forgotten


@dataclass
class Tasks:
    """Shows how far a run is: so many of its tasks, as long as each other, are done or left out."""

    progress: Progress
    num_tasks: int
    num_done: int = 0

    def show(self, share: float, what: str) -> None:
        """So much of a task is done."""
        self.progress.show((self.num_done + share) / self.num_tasks, what)


@dataclass(frozen=True)
class Asked:
    """What came of the dialogues of a kind in one configuration."""

    kind: Kind
    configuration: Configuration
    outcomes: Sequence[Outcome]


@dataclass
class Found:
    """What one mode of the weights showed.

    Attributes:
        texts: what perplexity is of.
        asked: dialogues.
        losses: of each text, by configuration.
        reference: losses of each text with nothing forgotten, as far as the model's positions go; in whole modes.
        left_out: what could not be measured, and why.
    """

    facts: ModelFacts
    texts: Sequence[Text]
    asked: list[Asked] = field(default_factory=list)
    losses: dict[Configuration, list[Losses]] = field(default_factory=dict)
    reference: Sequence[Losses] = ()
    left_out: list[str] = field(default_factory=list)


class Measurement:
    """A loaded verifier, and everything that it is put to."""

    def __init__(self, verifier: Verifier, plan: Plan, material: Material, tasks: Tasks) -> None:
        self._verifier, self._plan, self._material, self._tasks = verifier, plan, material, tasks
        self._geometry = plan.geometry(material.longest_probe)
        self._found = Found(verifier.facts, material.texts)

    def run(self, weights: str) -> Found:
        """Measures a mode."""
        possible = [each for each in self._plan.configurations(weights) if self._is_possible(each)]
        stage = self._stage(self._geometry)
        for configuration in possible:
            for kind in self._plan.kinds(configuration):
                self._ask(stage, kind, configuration)
        runs = [(each, self._plan.num_positions(each)) for each in possible]
        losses = self._losses(stage, f"perplexity: {weights}", runs)
        self._found.losses = dict(zip(possible, losses, strict=True))
        self._found.reference = self._reference(weights)
        return self._found

    def _stage(self, geometry: LaneGeometry) -> Stage:
        """Takes the place of the stage before: a verifier has one slab."""
        return Stage(self._verifier, geometry, num_lanes(self._verifier.facts, geometry))

    def _is_possible(self, configuration: Configuration) -> bool:
        try:
            configuration.retention(self._geometry)
        except InvalidField as refused:
            self._found.left_out.append(f"{configuration}: {refused}")
            self._tasks.num_done += len(self._plan.kinds(configuration))
            return False
        return True

    def _ask(self, stage: Stage, kind: Kind, configuration: Configuration) -> None:
        where = self._material.placed(kind, configuration)
        if reason := self._material.why_not(kind, where):
            self._tasks.num_done += 1
            if (told := f"{configuration}: {reason}") not in self._found.left_out:  # as it is for facts pinned and not
                self._found.left_out.append(told)
            return
        scripts = self._material.scripts(kind, self._plan.furthest(where.capacity))
        outcomes = self._play(stage, f"{kind}: {where}", [(script, where) for script in scripts])
        self._found.asked.append(Asked(kind, where, list(chain.from_iterable(outcomes))))

    def _play(self, stage: Stage, name: str, scripts: Sequence[tuple[Script[T], Configuration]]) -> list[T]:
        retained = [(script, configuration.retention(stage.geometry)) for script, configuration in scripts]
        results = stage.play(retained, lambda num_ended: self._tasks.show(num_ended / len(scripts), name))
        self._tasks.num_done += 1
        return results

    def _reference(self, weights: str) -> list[Losses]:
        """Full attention, or a configuration that keeps as much of a text as that reads."""
        length, losses = self._plan.reference_length, self._found.losses
        if not self._plan.is_whole(weights):
            return [np.empty(0)] * len(self._found.texts)
        for each in losses:
            if each.capacity >= length and each.policy == _FULL_ATTENTION_POLICY:
                self._tasks.num_done += 1
                return [of_text[:length] for of_text in losses[each]]
        full = Configuration(weights, _FULL_ATTENTION_POLICY, 0, length)
        stage = self._stage(LaneGeometry(0, length, SMALLEST_CHUNK))
        return self._losses(stage, f"full attention: {weights}", [(full, length)])[0]

    def _losses(self, stage: Stage, name: str, runs: Sequence[tuple[Configuration, int]]) -> list[list[Losses]]:
        """Those of all texts, by run: a configuration, and so many positions of each text.

        All runs at once: token by token, the more sessions there are in a step the less a token costs.
        """
        texts = self._found.texts
        scripts = [(text.script(num), configuration) for configuration, num in runs for text in texts]
        losses = iter(self._play(stage, name, scripts))
        return [[next(losses) for _ in texts] for _ in runs]
