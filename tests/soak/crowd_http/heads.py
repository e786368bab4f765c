"""Many conversations that begin with the same long system message: it is prefilled once."""

import asyncio
import time
from collections.abc import Iterator
from itertools import count

from tests.soak.crowd_http import traced
from tests.soak.crowd_http.client import Broken, Client, Refused
from tests.soak.crowd_http.ground import Ground
from tests.soak.crowd_http.part import Facts, Part
from tests.soak.crowd_http.talk import NEXT, Message, Talk, Told, asked, num_tokens, num_whole
from tests.soak.progress import Progress

LANES = 16
NUM_HEAD_TOKENS = 3_000
WINDOW = NUM_HEAD_TOKENS + 512
_NUM_AT_ONCE = 16
_NUM_TURNS = 2
_FIELDS = asked(4)


def long_head(at_least: int = NUM_HEAD_TOKENS) -> Message:
    """A system message of so many tokens, and some."""
    text = "You are a clerk of a library."
    rules = (f" Rule {number}: a reader of shelf {number} may keep {number % 7 + 2} books." for number in count(1))
    while num_tokens(text) < at_least:
        text += next(rules)
    return {"role": "system", "content": text}


class HeadsRun(Part):
    """All begin at once, through two shims, over fewer lanes than conversations. It is a violation if more than one of
    them is told that it has appended the head, if any next turn appends more than its own tokens, or if the worker was
    told to prefill more tokens, whatever for, than the clients were told of.

    Args:
        idle_seconds: after which a session is closed; no next turn that comes later has to go on.
    """

    def __init__(self, ground: Ground, progress: Progress, idle_seconds: float) -> None:
        super().__init__(ground, progress)
        self._idle_seconds = idle_seconds
        self._head = long_head()
        self._num_head = num_whole([self._head]) - num_tokens("<|im_start|>assistant\n")
        self._num_appended = 0

    async def run(self, num_talks: int, left_seconds: float) -> Facts:
        """Facts. After `left_seconds` nothing may be left."""
        self.begin(num_talks * _NUM_TURNS, "requests")
        talks = [Talk(number, [self._head]) for number in range(num_talks)]
        for _ in range(_NUM_TURNS):
            waiting = iter(talks)
            async with asyncio.TaskGroup() as group:
                for _ in range(_NUM_AT_ONCE):
                    group.create_task(self._ask_on(waiting))
        assert self._ground.receiver is not None
        await asyncio.to_thread(traced.settle, self._ground.receiver)
        num_prefilled = traced.num_prefilled(self._ground.receiver)
        self._check(num_prefilled)
        _, settled_seconds = await asyncio.to_thread(self.leave_nothing, left_seconds, self._ground.left_files)
        self.read_logs()
        return {
            "conversations": num_talks,
            "head_tokens": self._num_head,
            "lanes": LANES,
            "requests": self.tally.num_counted,
            "by_state": self.tally.by_what(),
            "appended_tokens": self._num_appended,
            "prefilled_tokens": num_prefilled,
            "settled_seconds": round(settled_seconds, 1),
        }

    async def _ask_on(self, waiting: Iterator[Talk]) -> None:
        async with Client() as client:
            for talk in waiting:
                turn = talk.num_answers + 1
                address = self._ground.addresses[(talk.number + turn) % 2]
                talk.says(f"I am reader {talk.number}, for the time {turn}. May I keep this book?")
                try:
                    told = await client.plain(address, talk.messages, **_FIELDS)
                except (Refused, Broken, AssertionError) as error:
                    self.refused(talk, error)
                    continue
                self._num_appended += told.appended
                self.answered(talk, told, [*(self._faults if talk.num_answers else self._faults_of_first)(talk, told)])

    def _faults(self, talk: Talk, told: Told) -> Iterator[str]:
        if told.way == NEXT:
            yield from talk.faults(told)
        elif time.monotonic() < talk.heard_at + self._idle_seconds:
            yield "it does not go on"

    def _faults_of_first(self, talk: Talk, told: Told) -> Iterator[str]:
        num_own = num_whole(talk.messages) - self._num_head
        if told.way == ("new", "first-turn"):
            is_well = (told.appended, told.reused) == (self._num_head + num_own, 0)
        else:
            is_well = (*told.way, told.appended, told.reused) == ("forked", "head", num_own, self._num_head)
        if not is_well:
            yield f"{self._num_head} tokens of the head, {num_own} of its own"

    def _check(self, num_prefilled: int) -> None:
        states = self.tally.outcomes["turn 1"]
        if states["new"] != 1:
            self.tally.violate(f"{states['new']} conversations appended the head")
        if num_prefilled != self._num_appended:
            self.tally.violate(
                f"clients were told of {self._num_appended} tokens appended, and the worker prefilled {num_prefilled}"
            )
