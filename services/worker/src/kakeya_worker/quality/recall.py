"""Recall against distance: one fact, told early, asked again and again at growing distances.

The distance of a question is p - j, where j is the history index of the first token of the message that tells the fact
(0 where the system message does) and p that of the last token before the answer. Each question is taken back before
the next one, so that no answer stands in the way; a session may take back a chunk.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import median_low

from kakeya_worker.quality import facts
from kakeya_worker.quality.chat_template import ChatTemplate, Tokens
from kakeya_worker.quality.configuration import Configuration
from kakeya_worker.quality.fillers import GREETING
from kakeya_worker.quality.script import ANSWER_TOKENS, Feed, Script, answer
from kakeya_worker.quality.share import NONE, Share
from kakeya_worker.quality.sight import Sight
from kakeya_worker.quality.transcript import Transcript

SYSTEM = "You are a helpful assistant."
FALLEN = 0.5  # recall below this has fallen


@dataclass(frozen=True)
class Question:
    """One question for the fact.

    Attributes:
        target: the distance that was asked for.
        sight: what it has, as close below the target as fillers fit.
        before: what stands between the question before (or the start) and this one.
        start: history length before the question.
        tokens: the question.
    """

    target: int
    sight: Sight
    before: Tokens
    start: int
    tokens: Tokens


@dataclass(frozen=True)
class RecallDialogue:
    """One fact and its questions by growing distance.

    Attributes:
        num_system_tokens: what a pin has to cover.
    """

    value: str
    num_system_tokens: int
    questions: tuple[Question, ...]

    def nearer_than(self, furthest: int) -> "RecallDialogue":
        """Only the questions up to a target."""
        questions = tuple(question for question in self.questions if question.target <= furthest)
        return replace(self, questions=questions)

    @property
    def longest_probe(self) -> int:
        """Tokens that a session must be able to take back."""
        return max((len(question.tokens) for question in self.questions), default=0) + ANSWER_TOKENS


@dataclass(frozen=True)
class Outcome:
    """Whether the fact was recalled at a distance, and the whole answer."""

    target: int
    sight: Sight
    recalled: bool
    said: Tokens


@dataclass(frozen=True)
class RecallAt:
    """Recall at one distance.

    Attributes:
        target: tokens; the distance that was asked for.
        distance: tokens; the median of those that the questions had.
        recalled: of all questions there.
        inside: of those whose telling stays in the window until the answer ends, by the window alone.
        beyond: of those whose telling has left the window before the answer begins.
    """

    target: int
    distance: int
    recalled: Share
    inside: Share
    beyond: Share


@dataclass(frozen=True)
class Recall:
    """Recall against distance in one configuration.

    Attributes:
        told_by: "user" or "system".
        is_pinned: the system message is among the sinks.
        by_distance: ascending.
        enough: so many questions at a distance make it one that is judged.
    """

    configuration: Configuration
    told_by: str
    is_pinned: bool
    by_distance: tuple[RecallAt, ...]
    enough: int

    @property
    def inside(self) -> Share:
        """Of all questions whose telling stays in sight."""
        return sum((at.inside for at in self.by_distance), NONE)

    @property
    def anywhere(self) -> Share:
        """Of all questions."""
        return sum((at.recalled for at in self.by_distance), NONE)

    @property
    def lowest_inside(self) -> float | None:
        """At the worst of the distances in sight at which enough was asked; None where there is none."""
        return self._lowest(at.inside for at in self.by_distance)

    @property
    def lowest_beyond(self) -> float | None:
        """The same of the distances at which the window alone sees nothing of the telling."""
        return self._lowest(at.beyond for at in self.by_distance)

    @property
    def well_sampled(self) -> list[RecallAt]:
        """The distances at which enough was asked."""
        return [at for at in self.by_distance if at.recalled.num >= self.enough]

    @property
    def falls_at(self) -> int | None:
        """The first of the well-sampled distances at which less than half is recalled; None where there is none."""
        return next((at.distance for at in self.well_sampled if _has_fallen(at)), None)

    @property
    def stays_fallen(self) -> bool:
        """Whether less than half is recalled at all well-sampled distances from `falls_at` on."""
        falls_at = self.falls_at
        return falls_at is not None and all(_has_fallen(at) for at in self.well_sampled if at.distance >= falls_at)

    def _lowest(self, shares: Iterable[Share]) -> float | None:
        known = (share.value for share in shares if share.num >= self.enough)
        return min((share for share in known if share is not None), default=None)


def _has_fallen(at: RecallAt) -> bool:
    return (at.recalled.value or 0.0) < FALLEN


def write(template: ChatTemplate, random: Random, targets: Sequence[int], told_by: str) -> RecallDialogue:
    """Draws a fact and writes its dialogue, with a question for each target that is not too near to be one."""
    fact = facts.draw(random)
    system = f"{SYSTEM} {fact.noted}" if told_by == "system" else None
    transcript = Transcript(template, random, forbidden=(fact.value,), system=system)
    transcript.say(GREETING)
    told_at, told_until = 0, transcript.num_system_tokens
    if told_by == "user":
        told_at = len(transcript)
        told_until = told_at + len(transcript.question(fact.told))
        transcript.say(fact.telling)
    questions: list[Question] = []
    fed = 0
    for target in sorted(targets):
        tokens = transcript.question(random.choice(fact.asked))
        at_most = told_at + target + 1 - len(tokens)
        transcript.fill(until=at_most)
        start = len(transcript)
        if start > at_most or start == fed:  # too near to be asked, or just where the question before was
            continue
        asked_at = start + len(tokens) - 1
        sight = Sight(first=asked_at - told_at, last=asked_at - (told_until - 1))
        questions.append(Question(target, sight, tuple(transcript.tokens[fed:start]), start, tokens))
        fed = start
    return RecallDialogue(fact.value, transcript.num_system_tokens, tuple(questions))


def script(dialogue: RecallDialogue, template: ChatTemplate) -> Script[list[Outcome]]:
    """Asks each question and takes it back."""
    outcomes = []
    for question in dialogue.questions:
        yield Feed(question.before, question.start - len(question.before), wants_logits=False)
        said = yield from answer(question.tokens, template.eos_token_ids)
        recalled = facts.stands_in(dialogue.value, template.decode(said))
        outcomes.append(Outcome(question.target, question.sight, recalled, said))
    return outcomes


def summarize(
    configuration: Configuration, told_by: str, outcomes: Sequence[Outcome], enough: int, *, is_pinned: bool = False
) -> Recall:
    """Counts by distance."""
    targets = sorted({outcome.target for outcome in outcomes})
    by_distance = (
        _at([outcome for outcome in outcomes if outcome.target == target], configuration.window) for target in targets
    )
    return Recall(configuration, told_by, is_pinned, tuple(by_distance), enough)


def _at(outcomes: Sequence[Outcome], window: int) -> RecallAt:
    return RecallAt(
        outcomes[0].target,
        median_low(outcome.sight.first for outcome in outcomes),
        recalled=Share.of(outcome.recalled for outcome in outcomes),
        inside=Share.of(outcome.recalled for outcome in outcomes if outcome.sight.is_whole(window)),
        beyond=Share.of(outcome.recalled for outcome in outcomes if outcome.sight.is_gone(window)),
    )
