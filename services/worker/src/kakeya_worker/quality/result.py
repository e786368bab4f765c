"""All that a run of the bench found, and the figures that floors are about."""

from collections.abc import Iterable
from dataclasses import dataclass

from kakeya_worker.quality.comparison import Comparison, compare
from kakeya_worker.quality.floors import JudgedFloor
from kakeya_worker.quality.measurement import Found
from kakeya_worker.quality.multi_turn import MultiTurn
from kakeya_worker.quality.perplexity import PerplexityByPosition
from kakeya_worker.quality.plan import Plan
from kakeya_worker.quality.recall import Recall


@dataclass(frozen=True)
class Result:
    """A run of the bench.

    Attributes:
        found: by mode of the weights.
        chosen: the mode that a worker would choose by itself; None where it was not asked.
        seconds: that it took.
    """

    plan: Plan
    model_name: str
    is_plain: bool
    found: dict[str, Found]
    chosen: str | None
    seconds: float

    @property
    def recall(self) -> list[Recall]:
        return [recall for found in self.found.values() for recall in found.recall]

    @property
    def multi_turn(self) -> list[MultiTurn]:
        return [multi_turn for found in self.found.values() for multi_turn in found.multi_turn]

    @property
    def perplexity(self) -> list[PerplexityByPosition]:
        return [perplexity for found in self.found.values() for perplexity in found.perplexity]

    @property
    def left_out(self) -> list[str]:
        return [reason for found in self.found.values() for reason in found.left_out]

    @property
    def comparisons(self) -> list[Comparison]:
        return compare(self.found)

    @property
    def judged(self) -> list[JudgedFloor]:
        """The floors that were asked for."""
        figures = self.figures
        return [floor.judge(figures[floor.name]) for floor in self.plan.options.floors]

    @property
    def figures(self) -> dict[str, float | None]:
        """What floors are about, by their names; None where it was not measured.

        Shares are of sessions with the most sinks; that of the worst mode, policy, window and distance counts, of those
        at which enough was asked.
        """
        most_sinks = self.plan.most_sinks
        by_user = [each for each in self.recall if each.told_by == "user" and each.configuration.sink == most_sinks]
        pinned = [each for each in self.recall if each.is_pinned]
        turns = [each for each in self.multi_turn if each.configuration.sink == most_sinks]
        return {
            "recall_inside": _lowest(each.lowest_inside for each in by_user),
            "recall_pinned": _lowest(each.lowest_beyond for each in pinned),
            "multi_turn_recall": _lowest(
                each.in_sight.value for each in turns if each.in_sight.num >= self.plan.enough
            ),
            "int8_recall_loss": _highest(each.recall_loss for each in self.comparisons),
            "int8_perplexity_loss": _highest(each.perplexity_loss for each in self.comparisons),
        }


def _lowest(shares: Iterable[float | None]) -> float | None:
    return min((share for share in shares if share is not None), default=None)


def _highest(losses: Iterable[float | None]) -> float | None:
    known = list(losses)
    return None if None in known else max((loss for loss in known if loss is not None), default=None)
