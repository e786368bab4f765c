"""Many more conversations than lanes, whose turns come in random order: each gets a lane when it asks."""

import asyncio
import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.soak.crowd_http import traced
from tests.soak.crowd_http.client import Broken, Client, Refused, written
from tests.soak.crowd_http.ground import Ground
from tests.soak.crowd_http.part import Facts, Part
from tests.soak.crowd_http.talk import Talk, asked, num_tokens
from tests.soak.progress import Progress

LANES = 16
NUM_TURNS = 5
MAX_WAIT_SECONDS = 2.0
_NUM_AT_ONCE = LANES
_NUM_ANSWER_TOKENS = 4
_FIELDS = asked(_NUM_ANSWER_TOKENS)
_FRESH = 20
"""The last answer of so many conversations is asked of a fresh session, too."""
# A prefill of a tenth of a second is not cheaper than parking (`WorkerRecord.cheap_tokens`); at most so many tokens.
_DEAR_SECONDS, _MOST_DEAR = 0.1, 3_000


class LanesRun(Part):
    """As many requests at once as there are lanes. Every second conversation begins with a text whose prefill costs
    more than parking, so that its session is parked where its lane is wanted; the others may be closed and are
    prefilled anew. It is a violation if any is refused, if one goes on elsewhere than where it was, if answers are not
    those of a fresh session, or if nothing was parked; and it is late if a call of the router has waited longer than
    2 s until it had a lane, by its own spans.
    """

    def __init__(self, ground: Ground, progress: Progress, seed: int) -> None:
        super().__init__(ground, progress)
        self._seed = seed
        (worker,) = self.made.list_workers()
        self._num_dear = min(int(_DEAR_SECONDS * worker.prefill_tokens_per_second), _MOST_DEAR)

    async def run(self, num_talks: int, left_seconds: float) -> Facts:
        """Facts. After `left_seconds` nothing may be left."""
        self.begin(num_talks * NUM_TURNS, "requests")
        talks = [Talk(number) for number in range(num_talks)]
        order = talks * NUM_TURNS
        random.Random(self._seed).shuffle(order)
        self._busy = [asyncio.Lock() for _ in talks]
        waiting = iter(order)
        async with asyncio.TaskGroup() as group:
            for number in range(_NUM_AT_ONCE):
                group.create_task(self._ask_on(waiting, number))
        waits, num_compared = await self._waits(), await self._ask_fresh(talks)
        num_parked = self._num_parked()
        if not num_parked:
            self.tally.violate("nothing was parked: this tested nothing")
        _, settled_seconds = await asyncio.to_thread(self.leave_nothing, left_seconds, self._ground.left_files)
        self.read_logs()
        return {
            "conversations": num_talks,
            "lanes": LANES,
            "at_once": _NUM_AT_ONCE,
            "requests": self.tally.num_counted,
            "by_state": self.tally.by_outcome(),
            "by_reason": dict(self.tally.kinds.most_common()),
            "parked_for_a_lane": num_parked,
            "lane_wait_seconds": waits,
            "asked_of_fresh_sessions": num_compared,
            "settled_seconds": round(settled_seconds, 1),
        }

    async def _ask_on(self, waiting: Iterator[Talk], number: int) -> None:
        draw = random.Random(f"{self._seed}/{number}")
        async with Client() as client:
            for talk in waiting:
                async with self._busy[talk.number]:
                    await self._ask(client, talk, draw.choice(self._ground.addresses))

    async def _ask(self, client: Client, talk: Talk, address: str) -> None:
        talk.says(self._text(talk))
        try:
            told = await client.plain(address, talk.messages, **_FIELDS)
        except (Refused, Broken, AssertionError) as error:
            self.refused(talk, error)
            talk.messages.pop()
        else:
            self.answered(talk, told, [*talk.faults(told)])

    def _text(self, talk: Talk) -> str:
        asked_for = f"What is {talk.number} plus {talk.num_answers}?"
        if talk.num_answers or talk.number % 2:
            return asked_for
        line = f"The {talk.number}th reader has a book. "
        return line * (self._num_dear // num_tokens(line) + 1) + asked_for

    async def _waits(self) -> dict[str, Any]:
        assert self._ground.receiver is not None
        await asyncio.to_thread(traced.settle, self._ground.receiver)
        waits = traced.lane_waits(self._ground.receiver)
        if len(waits) < self.tally.num_counted // 2:
            self.tally.violate(f"only {len(waits)} spans tell of a lane: this measured nothing")
            return {}
        if (longest := max(waits)) > MAX_WAIT_SECONDS:
            self.late.append(f"a lane was waited for {longest:.2f} s (bound: {MAX_WAIT_SECONDS:g} s)")
        p50, p99 = np.percentile(waits, (50, 99))
        return {"number": len(waits), "p50": round(p50, 4), "p99": round(p99, 4), "longest": round(longest, 3)}

    async def _ask_fresh(self, talks: list[Talk]) -> int:
        """Asks a shim without live sessions for some last answers again; how many. Only where the answers' texts are
        their tokens: a text that the model would have written in others is another history.
        """
        alone = await asyncio.to_thread(self.made.start_http, "--live-sessions", "off")
        self.watch.follow(alone)
        whole = [talk for talk in talks if talk.num_answers == NUM_TURNS and _is_plain(talk)]
        some = random.Random(self._seed).sample(whole, min(_FRESH, len(whole)))
        async with Client() as client:
            for talk in some:
                *messages, last = talk.messages
                _, body = await client.exchange(alone.address, written(messages, **_FIELDS))
                answer = json.loads(body)["choices"][0]["message"]["content"]
                if answer != last["content"]:
                    self.tally.violate(
                        f"conversation {talk.number} ends with {last['content']!r}; a fresh session says {answer!r}"
                    )
        if not some:
            self.tally.violate("no fresh session was asked")
        return len(some)

    def _num_parked(self) -> int:
        return sum(router.log.read_text().count("idle session parked for its lane") for router in self.made.routers)


def _is_plain(talk: Talk) -> bool:
    answers = [each["content"] for each in talk.messages if each["role"] == "assistant"]
    return all(num_tokens(answer) == _NUM_ANSWER_TOKENS and answer == answer.strip() for answer in answers)
