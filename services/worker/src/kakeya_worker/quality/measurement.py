"""Measures one mode of the weights in its configurations."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from kakeya_shared.errors.tree import InvalidField
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.verifier import ModelFacts, Verifier
from kakeya_worker.quality import multi_turn, perplexity, recall
from kakeya_worker.quality.chat_template import ChatTemplate
from kakeya_worker.quality.configuration import Configuration
from kakeya_worker.quality.material import Material
from kakeya_worker.quality.multi_turn import MultiTurn
from kakeya_worker.quality.perplexity import Losses, Perplexity, PerplexityByPosition, Text
from kakeya_worker.quality.plan import Plan, num_lanes
from kakeya_worker.quality.progress import Progress
from kakeya_worker.quality.recall import Outcome, Recall, RecallDialogue
from kakeya_worker.quality.stage import Stage

_FULL_ATTENTION_POLICY = "sink-window"  # inside its window nothing is forgotten


@dataclass
class Found:
    """What one mode of the weights showed.

    Attributes:
        full_attention: perplexity with nothing forgotten, as far as the model's positions go; by interval.
        left_out: what could not be measured, and why.
        texts: what perplexity is of.
        compared, losses: outcomes and texts' losses, one by one, for comparisons between modes.
    """

    facts: ModelFacts
    texts: Sequence[Text] = field(repr=False)
    recall: list[Recall] = field(default_factory=list)
    multi_turn: list[MultiTurn] = field(default_factory=list)
    perplexity: list[PerplexityByPosition] = field(default_factory=list)
    full_attention: tuple[Perplexity, ...] = ()
    left_out: list[str] = field(default_factory=list)
    compared: dict[Configuration, list[Outcome]] = field(default_factory=dict, repr=False)
    losses: dict[Configuration, list[Losses]] = field(default_factory=dict, repr=False)


def num_tasks(plan: Plan, configuration: Configuration) -> int:
    """Of one configuration: recall and multi-turn recall; system facts, pinned and not; the comparison."""
    num_pairs = int(plan.has_dialogues(configuration)) + int(plan.has_system_facts(configuration))
    return 2 * num_pairs + int(plan.is_compared(configuration))


def num_tasks_in_all(plan: Plan) -> int:
    """With perplexity, one task for all configurations of a mode, and another for full attention; at most."""
    modes = plan.options.weights
    num_whole = sum(plan.is_whole(weights) for weights in modes)
    return (
        len(modes)
        + num_whole
        + sum(num_tasks(plan, each) for weights in modes for each in plan.configurations(weights))
    )


class Measurement:
    """A loaded verifier, and everything that it is put to."""

    def __init__(
        self, verifier: Verifier, plan: Plan, template: ChatTemplate, material: Material, progress: Progress
    ) -> None:
        self._plan, self._template, self._material, self._progress = plan, template, material, progress
        self._verifier = verifier
        self._geometry = plan.geometry(material.longest_probe)
        self._found = Found(verifier.facts, material.texts)

    def run(self, weights: str) -> Found:
        """Measures a mode."""
        possible = [each for each in self._plan.configurations(weights) if self._is_possible(each)]
        stage = self._stage_of(self._geometry)
        for configuration in possible:
            self._measure_recall(stage, configuration)
        self._measure_perplexity(stage, weights, possible)
        return self._found

    def _stage_of(self, geometry: LaneGeometry) -> Stage:
        """Takes the place of the stage before: a verifier has one slab."""
        return Stage(self._verifier, geometry, num_lanes(self._verifier.facts, geometry))

    def _is_possible(self, configuration: Configuration) -> bool:
        try:
            configuration.retention(self._geometry)
        except InvalidField as refused:
            self._leave_out(num_tasks(self._plan, configuration), f"{configuration}: {refused}")
            return False
        return True

    def _measure_recall(self, stage: Stage, configuration: Configuration) -> None:
        plan, found, material = self._plan, self._found, self._material
        if plan.has_dialogues(configuration):
            outcomes = self._recall(stage, configuration, material.told_by_user, "recall")
            found.recall.append(recall.summarize(configuration, "user", outcomes, plan.enough))
            self._measure_multi_turn(stage, configuration)
        if plan.has_system_facts(configuration):
            self._measure_system(stage, configuration)
        if plan.is_compared(configuration):
            if not material.compared:
                self._leave_out(0, f"{configuration}: recall compared: no distance that is asked for is in sight")
            found.compared[configuration] = self._recall(stage, configuration, material.compared, "compared recall")

    def _measure_system(self, stage: Stage, configuration: Configuration) -> None:
        """The fact in the system message: pinned, and in the same memory not pinned."""
        dialogues, enough = self._material.told_by_system, self._plan.enough
        if not dialogues:
            self._leave_out(2, f"{configuration}: facts in the system message: the chat template takes none")
            return
        plain = self._recall(stage, configuration, dialogues, "system fact")
        self._found.recall.append(recall.summarize(configuration, "system", plain, enough))
        pinned = configuration.pinned(self._material.num_system_tokens)
        if pinned.window < self._material.longest_probe:
            self._leave_out(
                1,
                f"{configuration}: pinned facts: {pinned.sink} sinks leave a window of {pinned.window}, a question and "
                f"its answer take up to {self._material.longest_probe}",
            )
            return
        outcomes = self._recall(stage, pinned, dialogues, "pinned fact")
        self._found.recall.append(recall.summarize(pinned, "system", outcomes, enough, is_pinned=True))

    def _measure_multi_turn(self, stage: Stage, configuration: Configuration) -> None:
        dialogues = self._material.multi_turn
        if not dialogues:
            reason = f"the largest window is too small for {multi_turn.FEWEST_FACTS} facts and their questions"
            self._leave_out(1, f"{configuration}: multi-turn recall: {reason}")
            return
        retention = configuration.retention(stage.geometry)
        scripts = [(multi_turn.script(dialogue, self._template), retention) for dialogue in dialogues]
        with self._progress.task(f"multi-turn: {configuration}", len(scripts)) as on_end:
            answers = list(chain.from_iterable(stage.play(scripts, on_end)))
        self._found.multi_turn.append(multi_turn.summarize(configuration, answers))

    def _leave_out(self, num_tasks: int, reason: str) -> None:
        self._progress.leave_out(num_tasks)
        self._found.left_out.append(reason)

    def _recall(
        self, stage: Stage, configuration: Configuration, dialogues: Sequence[RecallDialogue], name: str
    ) -> list[Outcome]:
        targets = self._plan.distances_of(configuration.capacity)
        retention = configuration.retention(stage.geometry)
        asked = [dialogue.nearer_than(targets[-1]) for dialogue in dialogues]
        scripts = [(recall.script(dialogue, self._template), retention) for dialogue in asked]
        with self._progress.task(f"{name}: {configuration}", len(scripts)) as on_end:
            return list(chain.from_iterable(stage.play(scripts, on_end)))

    def _measure_perplexity(self, stage: Stage, weights: str, configurations: Sequence[Configuration]) -> None:
        texts, found = self._found.texts, self._found
        runs = [(each, self._plan.num_positions(each)) for each in configurations]
        if forgets_nothing := self._forgets_nothing(weights, configurations):
            self._progress.leave_out(1)  # full attention needs no measurement of its own
        found.losses = dict(zip(configurations, self._losses(stage, f"perplexity: {weights}", runs), strict=True))
        reference = self._reference(weights, forgets_nothing)
        found.full_attention = perplexity.curve(texts, reference)
        for configuration, losses in found.losses.items():
            found.perplexity.append(perplexity.summarize(configuration, texts, losses, reference))

    def _forgets_nothing(self, weights: str, configurations: Sequence[Configuration]) -> Configuration | None:
        """One of them, whose sessions keep as much as full attention reads."""
        if not self._plan.is_whole(weights):
            return None
        enough = (each for each in configurations if each.capacity >= self._plan.reference_length)
        return next((each for each in enough if each.policy == _FULL_ATTENTION_POLICY), None)

    def _reference(self, weights: str, forgets_nothing: Configuration | None) -> list[Losses]:
        """The losses of each text with nothing forgotten, as far as the model's positions go; in whole modes."""
        plan, length = self._plan, self._plan.reference_length
        if not plan.is_whole(weights):
            return [np.empty(0)] * len(self._found.texts)
        if forgets_nothing:
            return [losses[:length] for losses in self._found.losses[forgets_nothing]]
        full = Configuration(weights, _FULL_ATTENTION_POLICY, 0, length)
        stage = self._stage_of(plan.reference_geometry)
        (losses,) = self._losses(stage, f"full attention: {weights}", [(full, length)])
        return losses

    def _losses(self, stage: Stage, name: str, runs: Sequence[tuple[Configuration, int]]) -> list[list[Losses]]:
        """Those of all texts, by run: a configuration, and so many positions of each text.

        All runs at once: token by token, the more sessions there are in a step the less a token costs.
        """
        texts = self._found.texts
        scripts = [
            (perplexity.script(text, num_positions), configuration.retention(stage.geometry))
            for configuration, num_positions in runs
            for text in texts
        ]
        with self._progress.task(name, len(scripts)) as on_end:
            losses = iter(stage.play(scripts, on_end))
        return [[next(losses) for _ in texts] for _ in runs]
