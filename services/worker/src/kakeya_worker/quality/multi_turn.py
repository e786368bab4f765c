"""Multi-turn recall: several facts told over the first turns, asked one after another, the answers staying."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from kakeya_worker.quality import facts
from kakeya_worker.quality.chat_template import ChatTemplate, Tokens
from kakeya_worker.quality.configuration import Configuration
from kakeya_worker.quality.facts import Fact
from kakeya_worker.quality.fillers import GREETING
from kakeya_worker.quality.script import Feed, Script, answer
from kakeya_worker.quality.share import Share
from kakeya_worker.quality.sight import Sight
from kakeya_worker.quality.transcript import Transcript

FEWEST_FACTS, MOST_FACTS = 3, 6
LENGTH = 0.6  # of S + W of the largest window: there the questions fit, too
_TOKENS_A_FACT = 52  # of a dialogue, so that a short one has fewer: a telling with its answer, and as much again


@dataclass(frozen=True)
class AskedFact:
    """A fact with its place and its question, which follows an answer.

    Attributes:
        told_at: history index of the first token of the message that tells it.
        told_until: that of the first token after that message.
    """

    value: str
    told_at: int
    told_until: int
    question: Tokens


@dataclass(frozen=True)
class MultiTurnDialogue:
    """What is fed before the first question, to the end of its last answer; and the questions."""

    tokens: Tokens
    asked: tuple[AskedFact, ...]


@dataclass(frozen=True)
class Answer:
    """Whether a fact was recalled."""

    sight: Sight
    recalled: bool


@dataclass(frozen=True)
class MultiTurn:
    """Multi-turn recall in one configuration.

    Attributes:
        in_sight: of the questions whose telling was in the window until the answer's end.
        out_of_sight: of the questions whose whole telling had left it before the answer began.
    """

    configuration: Configuration
    in_sight: Share
    out_of_sight: Share


def num_facts(length: int) -> int:
    """So many facts a dialogue of so many tokens holds; none where they would be too few to be mixed up."""
    fitting = length // _TOKENS_A_FACT
    return 0 if fitting < FEWEST_FACTS else min(MOST_FACTS, fitting)


def write(template: ChatTemplate, random: Random, length: int) -> MultiTurnDialogue:
    """Tells facts over the first half, fillers between them where they fit, and fills up to a length in tokens."""
    known: list[Fact] = []
    for _ in range(num_facts(length)):
        known.append(facts.draw(random, known))
    transcript = Transcript(template, random, forbidden=[fact.value for fact in known])
    asked = []
    transcript.say(GREETING)
    for number, fact in enumerate(known, 1):
        start, telling = len(transcript), transcript.question(fact.told)
        asked.append(AskedFact(fact.value, start, start + len(telling), template.question(random.choice(fact.asked))))
        transcript.say(fact.telling)
        transcript.fill(until=length * number // (2 * len(known)))
    transcript.fill(until=length)
    random.shuffle(asked)
    return MultiTurnDialogue(tuple(transcript.tokens), tuple(asked))


def script(dialogue: MultiTurnDialogue, template: ChatTemplate) -> Script[list[Answer]]:
    """Asks everything in one history."""
    yield Feed(dialogue.tokens, wants_logits=False)
    length, unfed, answers = len(dialogue.tokens), Tokens(), []
    for fact in dialogue.asked:
        prompt = (*unfed, *fact.question)
        length += len(prompt)
        said = yield from answer(prompt, template.eos_token_ids)
        recalled = facts.stands_in(fact.value, template.decode(said))
        asked_at = length - 1
        answers.append(Answer(Sight(asked_at - fact.told_at, asked_at - (fact.told_until - 1)), recalled))
        length += len(said) - 1  # the last one is fed with the next question
        is_ended = said[-1] in template.eos_token_ids
        unfed = said[-1:] if is_ended else (*said[-1:], *template.end_of_answer)
    return answers


def summarize(configuration: Configuration, answers: Sequence[Answer]) -> MultiTurn:
    """Counts by what was in sight; questions whose telling is in the middle of leaving it count nowhere."""
    window = configuration.window
    return MultiTurn(
        configuration,
        in_sight=Share.of(answer.recalled for answer in answers if answer.sight.is_whole(window)),
        out_of_sight=Share.of(answer.recalled for answer in answers if answer.sight.is_gone(window)),
    )
