"""Dialogues in which facts are told and asked for.

Recall against distance has one fact, told early, asked again and again at growing distances; each question is taken
back before the next one, so that no answer stands in the way; a session may take back a chunk. Multi-turn recall has
several facts, told over the first turns, asked one after another, the answers staying. And texts, whose tokens are
predicted, one after the other.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np
from numpy.typing import NDArray

from kakeya_bench.quality.material import facts, fillers
from kakeya_bench.quality.material.chat_template import ChatTemplate
from kakeya_bench.quality.material.facts import Exchange, Fact
from kakeya_bench.quality.material.fillers import GREETING
from kakeya_bench.quality.material.script import Feed, Logits, Outcome, Script, Tokens, answer
from kakeya_bench.quality.plan import ANSWER_TOKENS
from kakeya_bench.quality.settings import CannotMeasure

_NUM_CANDIDATES = 12  # fillers to choose the longest from that still fits
_NEAR = 160  # tokens; closer to the end than this, fillers are chosen by their length
SYSTEM = "You are a helpful assistant."
FEWEST_FACTS, MOST_FACTS = 3, 6  # of multi-turn recall
_TOKENS_A_FACT = 52  # of a dialogue, so that a short one has fewer: a telling with its answer, and as much again
Losses = NDArray[np.float64]  # nats, by the position that predicts; [positions]
_MIN_TOKENS = 32


class Transcript:
    """Tokens so far, and which of them are the assistant's.

    Args:
        forbidden: values that stand in no filler.

    Attributes:
        tokens: all of them.
        is_answer: beside each token, whether the assistant wrote it, the end of an answer included.
        num_system_tokens: what stands before the first user's text.
    """

    def __init__(
        self, template: ChatTemplate, random: Random, *, forbidden: Collection[str] = (), system: str | None = None
    ) -> None:
        self._template = template
        self._random = random
        self._forbidden = forbidden
        self._is_first = True
        self.tokens: list[int] = []
        self.is_answer: list[bool] = []
        self._add(template.system(system), is_answer=False)
        self.num_system_tokens = len(self.tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    def question(self, text: str) -> Tokens:
        """What would follow if the user said this; nothing is written."""
        return self._template.first_question(text) if self._is_first else self._template.question(text)

    def say(self, exchange: Exchange) -> None:
        """Writes an exchange."""
        self._add(self.question(exchange.question), is_answer=False)
        self._add(self._template.answer(exchange.answer), is_answer=True)
        self._is_first = False

    def fill(self, until: int) -> None:
        """Writes fillers: up to so many tokens in all, and as close to them as they fit."""
        while (gap := until - len(self)) > 0:
            drawn = [fillers.draw(self._random, self._forbidden) for _ in range(_NUM_CANDIDATES if gap < _NEAR else 1)]
            fitting = [exchange for exchange in drawn if self._length(exchange) <= gap]
            if not fitting:
                return
            self.say(max(fitting, key=self._length))

    def _length(self, exchange: Exchange) -> int:
        return len(self.question(exchange.question)) + len(self._template.answer(exchange.answer))

    def _add(self, tokens: Tokens, *, is_answer: bool) -> None:
        self.tokens += tokens
        self.is_answer += [is_answer] * len(tokens)


@dataclass(frozen=True)
class Question:
    """One question for a fact.

    Attributes:
        target: the distance that is asked for, as close below it as fillers fit; 0 where it is as it comes.
        told_at: history index of the first token of the message that tells the fact; 0 of a system message.
        told_until: that of the first token after that message.
        before: what follows in the history before the question.
        tokens: the question.
    """

    value: str
    target: int
    told_at: int
    told_until: int
    before: Tokens
    tokens: Tokens


@dataclass(frozen=True)
class Dialogue:
    """Questions in their order.

    Attributes:
        num_system_tokens: what a pin has to cover.
        keeps_answers: each question follows the answer before it, which else is taken back with its question.
    """

    questions: tuple[Question, ...]
    num_system_tokens: int
    keeps_answers: bool = False

    @property
    def longest_probe(self) -> int:
        """Tokens that a session must be able to take back."""
        return max((len(question.tokens) for question in self.questions), default=0) + ANSWER_TOKENS

    def script(self, template: ChatTemplate, furthest: int) -> Script[list[Outcome]]:
        """Asks each question up to a distance."""
        length, unfed, outcomes = 0, Tokens(), []  # of the history that stays; what is fed with the next question
        for question in self.questions:
            if question.target > furthest:
                break
            if question.before:
                yield Feed(question.before, length, wants_logits=False)
                length += len(question.before)
            prompt = (*unfed, *question.tokens)
            said = yield from answer(prompt, template.eos_token_ids)
            asked_at = length + len(prompt) - 1
            recalled = facts.stands_in(question.value, template.decode(said))
            first, last = asked_at - question.told_at, asked_at - (question.told_until - 1)
            outcomes.append(Outcome(question.target, first, last, recalled, said))
            if self.keeps_answers:
                length = asked_at + len(said)  # but for the last token
                is_ended = said[-1] in template.eos_token_ids
                unfed = said[-1:] if is_ended else (*said[-1:], *template.end_of_answer)
        return outcomes


def one_fact(template: ChatTemplate, random: Random, targets: Sequence[int], *, in_system: bool = False) -> Dialogue:
    """Draws a fact and writes its dialogue, with a question for each target that is not too near to be one.

    Args:
        targets: distances in tokens, ascending.
        in_system: the system message tells the fact, not the user.
    """
    fact = facts.draw(random)
    system = f"{SYSTEM} {fact.noted}" if in_system else None
    transcript = Transcript(template, random, forbidden=(fact.value,), system=system)
    transcript.say(GREETING)
    told_at, told_until = 0, transcript.num_system_tokens
    if not in_system:
        told_at = len(transcript)
        told_until = told_at + len(transcript.question(fact.told))
        transcript.say(fact.telling)
    questions: list[Question] = []
    fed = 0
    for target in targets:
        tokens = transcript.question(random.choice(fact.asked))
        at_most = told_at + target + 1 - len(tokens)
        transcript.fill(until=at_most)
        if fed < len(transcript) <= at_most:  # else too near to be asked, or just where the question before was
            before = tuple(transcript.tokens[fed:])
            questions.append(Question(fact.value, target, told_at, told_until, before, tokens))
            fed = len(transcript)
    return Dialogue(tuple(questions), transcript.num_system_tokens)


def several_facts(template: ChatTemplate, random: Random, length: int) -> Dialogue:
    """Tells facts over the first half, fillers between them where they fit, and fills up to a length in tokens."""
    known: list[Fact] = []
    for _ in range(num_facts(length)):
        known.append(facts.draw(random, known))
    transcript = Transcript(template, random, forbidden=[fact.value for fact in known])
    questions = []
    transcript.say(GREETING)
    for number, fact in enumerate(known, 1):
        told_at = len(transcript)
        told_until = told_at + len(transcript.question(fact.told))
        asked = template.question(random.choice(fact.asked))
        questions.append(Question(fact.value, 0, told_at, told_until, (), asked))
        transcript.say(fact.telling)
        transcript.fill(until=length * number // (2 * len(known)))
    transcript.fill(until=length)
    random.shuffle(questions)
    questions[0] = replace(questions[0], before=tuple(transcript.tokens))
    return Dialogue(tuple(questions), transcript.num_system_tokens, keeps_answers=True)


def num_facts(length: int) -> int:
    """So many facts a dialogue of so many tokens holds; none where they would be too few to be mixed up."""
    fitting = length // _TOKENS_A_FACT
    return 0 if fitting < FEWEST_FACTS else min(MOST_FACTS, fitting)


@dataclass(frozen=True)
class Text:
    """A text to be predicted.

    Attributes:
        tokens: all of them.
        is_answer: beside each, whether the assistant wrote it.
    """

    tokens: Tokens
    is_answer: tuple[bool, ...]

    def script(self, num_positions: int) -> Script[Losses]:
        """The losses at the first positions."""
        losses = []
        for token, following in zip(self.tokens[:num_positions], self.tokens[1 : num_positions + 1], strict=False):
            logits = yield Feed((token,))
            losses.append(_loss(logits, following))
        return np.array(losses)


def write(template: ChatTemplate, random: Random, length: int) -> Text:
    """An endless dialogue, cut: fillers, facts told, and questions for facts told before."""
    known: list[Fact] = []
    transcript = Transcript(template, random)
    while len(transcript) < length:
        habit = random.random()
        if habit < 0.15 and len(known) < 12:
            known.append(facts.draw(random, known))
            transcript.say(known[-1].telling)
        elif habit < 0.4 and known:
            transcript.say(random.choice(known).asking(random))
        else:
            transcript.say(fillers.draw(random, ()))
    return Text(tuple(transcript.tokens[:length]), tuple(transcript.is_answer[:length]))


def cut(tokens: Tokens, length: int, num_texts: int) -> list[Text]:
    """At most so many texts of that length out of a long one; a shorter one is a text by itself.

    Raises:
        CannotMeasure: there is hardly any text.
    """
    if len(tokens) < _MIN_TOKENS:
        raise CannotMeasure(f"the text has {len(tokens)} tokens; at least {_MIN_TOKENS} are needed")
    length = min(length, len(tokens))
    starts = range(0, len(tokens) - length + 1, length)[:num_texts]
    return [Text(tokens[start : start + length], (False,) * length) for start in starts]


def _loss(logits: Logits, token: int) -> float:
    wide = logits.astype(np.float64) - logits.max()
    return float(np.log(np.exp(wide).sum()) - wide[token])
