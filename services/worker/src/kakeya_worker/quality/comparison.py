"""int8 beside float32, each with the KV that a worker keeps beside it, on the same dialogues and texts."""

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_worker.quality import perplexity
from kakeya_worker.quality.configuration import BASE, COMPARED, Configuration
from kakeya_worker.quality.measurement import Found
from kakeya_worker.quality.perplexity import Perplexity
from kakeya_worker.quality.recall import Outcome
from kakeya_worker.quality.share import Share


@dataclass(frozen=True)
class Comparison:
    """Both modes in one configuration.

    Attributes:
        policy, sink, window: of the configuration.
        recall, base_recall: inside the window, the same questions; int8's and float32's.
        agreement: questions with the same answer in both, token for token.
        perplexity, base_perplexity: over the same positions.
        recall_loss: 1 - int8 / float32; None where float32 recalls nothing.
        perplexity_loss: int8 / float32 - 1, over all tokens.
        answers_loss: the same over the assistant's; None where there are none.
    """

    policy: str
    sink: int
    window: int
    recall: Share
    base_recall: Share
    agreement: Share
    perplexity: Perplexity
    base_perplexity: Perplexity

    @property
    def recall_loss(self) -> float | None:
        if self.recall.value is None or not self.base_recall.value:
            return None
        return 1 - self.recall.value / self.base_recall.value

    @property
    def perplexity_loss(self) -> float | None:
        return _loss(self.perplexity.value, self.base_perplexity.value)

    @property
    def answers_loss(self) -> float | None:
        return _loss(self.perplexity.of_answers, self.base_perplexity.of_answers)


def _loss(ours: float | None, base: float | None) -> float | None:
    return None if ours is None or base is None else ours / base - 1


def compare(found: dict[str, Found]) -> list[Comparison]:
    """One for each policy that both modes were measured with."""
    if BASE not in found or COMPARED not in found:
        return []
    base = {_place(configuration): configuration for configuration in found[BASE].compared}
    return [
        _comparison(found, configuration, base[_place(configuration)])
        for configuration in found[COMPARED].compared
        if _place(configuration) in base
    ]


def _place(configuration: Configuration) -> tuple[str, int, int]:
    return configuration.policy, configuration.sink, configuration.window


def _comparison(found: dict[str, Found], configuration: Configuration, base: Configuration) -> Comparison:
    outcomes, base_outcomes = found[COMPARED].compared[configuration], found[BASE].compared[base]
    losses, base_losses = found[COMPARED].losses[configuration], found[BASE].losses[base]
    num_positions = min(max(map(len, losses)), max(map(len, base_losses)))
    texts = found[BASE].texts
    return Comparison(
        *_place(configuration),
        recall=_share(outcomes),
        base_recall=_share(base_outcomes),
        agreement=Share.of(ours.said == theirs.said for ours, theirs in zip(outcomes, base_outcomes, strict=True)),
        perplexity=perplexity.between(texts, losses, 0, num_positions),
        base_perplexity=perplexity.between(texts, base_losses, 0, num_positions),
    )


def _share(outcomes: Sequence[Outcome]) -> Share:
    return Share.of(outcome.recalled for outcome in outcomes)
