"""All dialogues and texts, written once: every configuration gets the same, so that figures can be compared."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from kakeya_bench.quality.material import dialogue
from kakeya_bench.quality.material.chat_template import ChatTemplate
from kakeya_bench.quality.material.dialogue import Dialogue, Text
from kakeya_bench.quality.material.script import Outcome, Script
from kakeya_bench.quality.plan import ANSWER_TOKENS, Configuration, Kind, Plan
from kakeya_bench.quality.settings import CannotMeasure

_MULTI_TURN_LENGTH = 0.6  # of S + W of the largest window: there the questions fit, too


@dataclass(frozen=True)
class Material:
    """What sessions are fed.

    Attributes:
        dialogues: none of several facts where they would be too short; none of the system message where the template
            knows no such message; none to compare modes by, whose questions are all in sight, where no distance is.
        texts: for perplexity.
    """

    template: ChatTemplate
    dialogues: Mapping[Kind, Sequence[Dialogue]]
    texts: Sequence[Text]

    @property
    def longest_probe(self) -> int:
        """Tokens that a session must be able to take back."""
        dialogues = (each for of_kind in self.dialogues.values() for each in of_kind)
        return max(dialogue.longest_probe for dialogue in dialogues if not dialogue.keeps_answers)

    def placed(self, kind: Kind, configuration: Configuration) -> Configuration:
        """Where dialogues of a kind are put: the system message may be pinned, in the same memory."""
        if kind is not Kind.PINNED:
            return configuration
        return configuration.pinned(max((each.num_system_tokens for each in self.dialogues[kind]), default=0))

    def why_not(self, kind: Kind, configuration: Configuration) -> str:
        """Why dialogues of a kind are not put to a configuration; "" where they are."""
        if not self.dialogues[kind]:
            return _WHY_NONE[kind]
        if kind is Kind.PINNED and configuration.window < self.longest_probe:
            return (
                f"pinned facts: {configuration.sink} sinks leave a window of {configuration.window}, a question and "
                f"its answer take up to {self.longest_probe}"
            )
        return ""

    def scripts(self, kind: Kind, furthest: int) -> list[Script[list[Outcome]]]:
        """Of all dialogues of a kind, with their questions up to a distance."""
        return [dialogue.script(self.template, furthest) for dialogue in self.dialogues[kind]]


_NO_SYSTEM = "facts in the system message: the chat template takes none"
_WHY_NONE = {
    Kind.MULTI_TURN: f"multi-turn recall: the largest window is too small for {dialogue.FEWEST_FACTS} facts and their "
    "questions",
    Kind.SYSTEM: _NO_SYSTEM,
    Kind.PINNED: _NO_SYSTEM,
    Kind.COMPARED: "recall compared: no distance that is asked for is in sight",
}


def write(plan: Plan, template: ChatTemplate) -> Material:
    """Draws everything from the seed.

    Raises:
        CannotMeasure: the text for perplexity cannot be read or is too short; no question is as near as is asked.
    """

    def each_sample(kind: str) -> list[Random]:
        return [_seeded(plan, kind, index) for index in range(plan.settings.num_samples)]

    by_user = [dialogue.one_fact(template, random, plan.distances) for random in each_sample("recall/user")]
    if not any(each.questions for each in by_user):
        raise CannotMeasure(
            f"no question is as near as {plan.distances[-1]} tokens to what it asks for; raise --distances"
        )
    in_system = [
        dialogue.one_fact(template, random, plan.distances, in_system=True)
        for random in (each_sample("recall/system") if template.takes_system else ())
    ]
    length = int(_MULTI_TURN_LENGTH * (plan.most_sinks + plan.windows[-1]))
    multi_turn = [
        dialogue.several_facts(template, random, length)
        for random in (each_sample("multi-turn") if dialogue.num_facts(length) else ())
    ]
    dialogues = {
        Kind.RECALL: by_user,
        Kind.MULTI_TURN: multi_turn,
        Kind.SYSTEM: in_system,
        Kind.PINNED: in_system,
        Kind.COMPARED: list(_compared(plan, template)),
    }
    file = plan.settings.text
    texts = _given_texts(plan, template, file) if file else _own_texts(plan, template)
    return Material(template, dialogues, texts)


def _seeded(plan: Plan, kind: str, index: int) -> Random:
    return Random(f"{plan.settings.seed}/{kind}/{index}")


def _compared(plan: Plan, template: ChatTemplate) -> Iterator[Dialogue]:
    """As many as have the questions that are wanted, all in sight in the middle window."""
    targets = [distance for distance in plan.distances if distance + ANSWER_TOKENS <= plan.middle_window]
    num_questions = 0
    for index in range(plan.num_compared if targets else 0):
        written = dialogue.one_fact(template, _seeded(plan, "recall/compared", index), targets)
        num_questions += len(written.questions)
        yield written
        if num_questions >= plan.num_compared:
            return


def _own_texts(plan: Plan, template: ChatTemplate) -> list[Text]:
    numbers = range(plan.num_texts)
    return [dialogue.write(template, _seeded(plan, "perplexity", number), plan.text_length) for number in numbers]


def _given_texts(plan: Plan, template: ChatTemplate, file: Path) -> list[Text]:
    try:
        content = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CannotMeasure(f"{file} cannot be read: {error}") from error
    return dialogue.cut(template.encode(content), plan.text_length, plan.num_texts)
