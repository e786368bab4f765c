"""All dialogues and texts, written once: every configuration gets the same, so that figures can be compared."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from kakeya_worker.quality import multi_turn, perplexity, recall
from kakeya_worker.quality.chat_template import ChatTemplate
from kakeya_worker.quality.failure import CannotMeasure
from kakeya_worker.quality.multi_turn import MultiTurnDialogue
from kakeya_worker.quality.perplexity import Text
from kakeya_worker.quality.plan import Plan
from kakeya_worker.quality.recall import RecallDialogue


@dataclass(frozen=True)
class Material:
    """What sessions are fed.

    Attributes:
        told_by_user: recall dialogues whose fact the user tells.
        told_by_system: those whose fact stands in the system message; none where the template knows no such message.
        compared: recall dialogues with questions in sight only, for comparisons between modes; none where no distance
            is in sight, or nothing is compared.
        multi_turn: dialogues of several facts; none where they would be too short for several.
        texts: for perplexity.
    """

    told_by_user: tuple[RecallDialogue, ...]
    told_by_system: tuple[RecallDialogue, ...]
    compared: tuple[RecallDialogue, ...]
    multi_turn: tuple[MultiTurnDialogue, ...]
    texts: tuple[Text, ...]

    @property
    def longest_probe(self) -> int:
        """Tokens that a session must be able to take back."""
        return max(dialogue.longest_probe for dialogue in self._recall)

    @property
    def _recall(self) -> tuple[RecallDialogue, ...]:
        return (*self.told_by_user, *self.told_by_system, *self.compared)

    @property
    def num_system_tokens(self) -> int:
        """What a pin has to cover in every dialogue."""
        return max((dialogue.num_system_tokens for dialogue in self.told_by_system), default=0)


def write(plan: Plan, template: ChatTemplate) -> Material:
    """Draws everything from the seed.

    Raises:
        CannotMeasure: the text for perplexity cannot be read or is too short; no question is as near as is asked.
    """
    samples = range(plan.options.num_samples)

    def seeded(kind: str, index: int) -> Random:
        return Random(f"{plan.options.seed}/{kind}/{index}")

    def recall_dialogues(told_by: str) -> tuple[RecallDialogue, ...]:
        return tuple(
            recall.write(template, seeded(f"recall/{told_by}", index), plan.distances, told_by) for index in samples
        )

    told_by_user = recall_dialogues("user")
    if not any(dialogue.questions for dialogue in told_by_user):
        raise CannotMeasure(
            f"no question is as near as {plan.distances[-1]} tokens to what it asks for; raise --distances"
        )
    length = int(multi_turn.LENGTH * plan.largest_capacity)
    num_multi_turn = plan.options.num_samples if multi_turn.num_facts(length) else 0
    return Material(
        told_by_user=told_by_user,
        told_by_system=recall_dialogues("system") if template.takes_system else (),
        compared=tuple(_compared(plan, template, seeded)),
        multi_turn=tuple(
            multi_turn.write(template, seeded("multi-turn", index), length) for index in range(num_multi_turn)
        ),
        texts=tuple(_given_texts(plan, template) or _own_texts(plan, template, seeded)),
    )


def _compared(plan: Plan, template: ChatTemplate, seeded: Callable[[str, int], Random]) -> Iterator[RecallDialogue]:
    """As many as have the questions that are wanted."""
    targets, num_questions = plan.compared_distances, 0
    for index in range(plan.num_compared if targets else 0):
        dialogue = recall.write(template, seeded("recall/compared", index), targets, "user")
        num_questions += len(dialogue.questions)
        yield dialogue
        if num_questions >= plan.num_compared:
            return


def _own_texts(plan: Plan, template: ChatTemplate, seeded: Callable[[str, int], Random]) -> list[Text]:
    return [
        perplexity.write(template, seeded("perplexity", index), plan.text_length) for index in range(plan.num_texts)
    ]


def _given_texts(plan: Plan, template: ChatTemplate) -> list[Text]:
    if plan.options.text is None:
        return []
    try:
        content = plan.options.text.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CannotMeasure(f"{plan.options.text} cannot be read: {error}") from error
    return perplexity.cut(template.encode(content), plan.text_length, plan.num_texts)
