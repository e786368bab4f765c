"""A whole conversation: exchanges of all kinds in any order, with facts told early and asked at any distance."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from nano_training.dialogues import facts, structured, tools
from nano_training.dialogues.arithmetic import arithmetic
from nano_training.dialogues.facts import Fact
from nano_training.dialogues.knowledge import knowledge
from nano_training.dialogues.message import Exchange, Filler, Message, system_text
from nano_training.dialogues.quoting import edit, first_and_last, quote
from nano_training.dialogues.small_talk import greeting, small_talk
from nano_training.dialogues.tools import Tool

_SYSTEM: Final = (
    "You are Kakeya, a small and friendly assistant.", "You are a helpful assistant.", "You are a friendly assistant.",
    "You are Kakeya.", "Answer in short sentences.",
)  # fmt: skip
_FILLERS: Final[tuple[tuple[str, Filler, int], ...]] = (
    ("small talk", small_talk, 11),
    ("arithmetic", arithmetic, 22),
    ("quote", quote, 9),
    ("edit", edit, 6),
    ("edit", first_and_last, 2),
    ("list", structured.make_list, 4),
    ("name some", structured.name_some, 2),
    ("list", structured.count_to, 1),
    ("json", structured.json_object, 5),
    ("json", structured.json_array, 3),
    ("knowledge", knowledge, 5),
)
_NEW_QUESTION: Final = 0.7  # of the questions, where some fact was never asked for: it has no nearer copy in an answer
_FAR_QUESTION: Final = 0.4  # of those, for the oldest of these facts


class Conversation:
    """Draws one conversation, without end.

    Args:
        offered: the tools that there are; None for chance to decide.

    Attributes:
        known: what was told so far, by key.
    """

    def __init__(self, random: Random, offered: Sequence[Tool] | None = None) -> None:
        self._random = random
        self.known: dict[str, Fact] = {}
        self._never_asked: list[Fact] = []
        drawn = random.sample(tools.TOOLS, random.randint(1, 3)) if random.random() < 0.2 else []
        self._tools = drawn if offered is None else offered
        self._telling, self._asking = random.uniform(4, 16), random.uniform(15, 40)  # of 100 exchanges, about

    def exchanges(self) -> Iterator[Exchange]:
        """The system message, if there is one, and then exchange after exchange."""
        system = self._system()
        if system or self._tools:
            text = system_text(system, [tool.signature for tool in self._tools])
            yield Exchange("system", [Message("system", text)], told=tuple(self.known))
        if self._random.random() < 0.4:
            yield Exchange("small talk", greeting(self._random))
        while True:
            yield self._exchange()

    def _system(self) -> str:
        habit = self._random.random()
        if habit < 0.35:
            return ""
        says = [self._random.choice(_SYSTEM)]
        if habit > 0.6:
            says += [self._learn().noted for _ in range(self._random.randint(1, 3))]
        return " ".join(says)

    def _exchange(self) -> Exchange:
        asking = self._asking if self.known else 0
        kinds = (self._fill, self._tell, self._ask, self._ask_unknown, self._use_tool)
        weights = (66 - asking, self._telling, asking, 7, 14 if self._tools else 0)
        return self._random.choices(kinds, weights)[0]()

    def _fill(self) -> Exchange:
        kind, filler, _ = self._random.choices(_FILLERS, [weight for *_, weight in _FILLERS])[0]
        return Exchange(kind, filler(self._random))

    def _tell(self) -> Exchange:
        told = [self._learn() for _ in range(self._random.choices((1, 2, 3), (80, 14, 6))[0])]
        return Exchange("tell", facts.tell(self._random, *told), told=tuple(fact.key for fact in told))

    def _ask(self) -> Exchange:
        known = self._remembered()
        return Exchange("recall", facts.ask(self._random, known), asked=known.key)

    def _ask_unknown(self) -> Exchange:
        return Exchange("unknown", facts.ask_unknown(self._random, self._new_fact()))

    def _use_tool(self) -> Exchange:
        return Exchange("tool", tools.use(self._random, self._random.choice(self._tools)))

    def _learn(self) -> Fact:
        learnt = self._new_fact()
        self.known[learnt.key] = learnt
        self._never_asked.append(learnt)
        return learnt

    def _new_fact(self) -> Fact:
        while (drawn := facts.fact(self._random)).key in self.known:
            pass
        return drawn

    def _remembered(self) -> Fact:
        if self._never_asked and self._random.random() < _NEW_QUESTION:
            is_far = self._random.random() < _FAR_QUESTION
            return self._never_asked.pop(0 if is_far else self._random.randrange(len(self._never_asked)))
        return self._random.choice(list(self.known.values()))
