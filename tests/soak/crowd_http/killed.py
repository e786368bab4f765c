"""Shims that are killed in mid-stream: each conversation goes on at another."""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial

from redis.asyncio import Redis

from tests.soak.crowd_http.client import Broken, Client, Refused
from tests.soak.crowd_http.ground import Ground
from tests.soak.crowd_http.part import Facts, Part
from tests.soak.crowd_http.talk import AGAIN, FIRST, NEXT, Talk, Told, asked, num_whole
from tests.soak.histories_http.ground import Records
from tests.soak.histories_http.oracle import difference
from tests.soak.progress import Progress

LANES = 64
_NUM_AT_ONCE = 16
_NUM_TURNS = 6
_FIELDS = asked(64)  # long enough to be in the midst of it
_MID_STREAM = 3
"""So many answers of a shim have begun, and not ended, when it is killed."""
_LOOK_SECONDS = 0.005
_WHY_AFTER_KILL = (AGAIN, "next-turn", "busy")


class KilledRun(Part):
    """Half of the conversations stream from each of two shims; one shim after the other is killed while some of its
    answers are in mid-stream, and another takes its place. Who was cut off asks the other shim the same. It is a
    violation if that begins anew, if any other request does not go on where its answer before has ended, or if the
    session's tokens, read in Redis, are not what was sent.
    """

    def __init__(self, ground: Ground, progress: Progress, seed: int) -> None:
        super().__init__(ground, progress)
        self._seed = seed
        self._streaming: defaultdict[str, set[int]] = defaultdict(set)  # numbers of talks, by address
        self._serving, self._dead = ground.addresses, set[str]()
        self._cut_off: Counter[str] = Counter()  # by what the other shim said then
        self._num_killed = self._num_talks = self._num_unseen = 0

    async def run(self, num_kills: int, left_seconds: float) -> Facts:
        """Facts. After `left_seconds` nothing may be left."""
        self.begin(num_kills, "kills", lambda: self._num_killed)
        async with Redis.from_url(self.made.redis.url, protocol=2) as store:
            self._records = Records(store)
            async with asyncio.TaskGroup() as group:
                killing = group.create_task(self._kill(num_kills))
                for _ in range(_NUM_AT_ONCE):
                    group.create_task(self._converse(killing))
        if sum(self._cut_off.values()) < num_kills * _MID_STREAM:
            self.tally.violate(f"only {sum(self._cut_off.values())} answers were cut off")
        if self._num_unseen:
            self.tally.violate(f"{self._num_unseen} sessions were gone before they were looked at")
        _, settled_seconds = await asyncio.to_thread(self.leave_nothing, left_seconds)
        self.read_logs()
        return {
            "kills": self._num_killed,
            "conversations": self._num_talks,
            "requests": self.tally.num_counted,
            "by_state": self.tally.by_outcome(),
            "cut_off": dict(self._cut_off.most_common()),
            "settled_seconds": round(settled_seconds, 1),
        }

    async def _kill(self, num_kills: int) -> None:
        shims = self.made.shims
        for number in range(num_kills):
            place = number % len(shims)
            victim = shims[place]
            while len(self._streaming[victim.address]) < _MID_STREAM:
                await asyncio.sleep(_LOOK_SECONDS)
            self._dead.add(victim.address)
            self._serving.remove(victim.address)
            self.watch.forget(victim)
            victim.kill()
            shims.remove(victim)
            self._num_killed += 1
            successor = await asyncio.to_thread(self.made.start_http, *self._ground.shim_flags)
            self.watch.follow(successor)
            self._serving.append(successor.address)
            shims.insert(place, shims.pop())

    async def _converse(self, killing: "asyncio.Task[None]") -> None:
        async with Client() as client:
            while not killing.done():
                number = self._num_talks
                self._num_talks += 1
                await self._hold(client, Talk(number), random.Random(f"{self._seed}/{number}"))

    async def _hold(self, client: Client, talk: Talk, draw: random.Random) -> None:
        for turn in range(_NUM_TURNS):
            talk.says(f"Tell me something about {talk.number}, in turn {turn}.")
            try:
                told, was_cut_off = await self._asked(client, talk, draw)
            except (Refused, AssertionError) as error:
                self.refused(talk, error)
                return
            if was_cut_off:
                self._cut_off[f"{told.state}, {told.why}"] += 1
            faults = [*(_faults_after_kill(talk, told) if was_cut_off else _faults(talk, told))]
            self.answered(talk, told, [*faults, *await self._faults_of_session(talk, told)])

    async def _asked(self, client: Client, talk: Talk, draw: random.Random) -> tuple[Told, bool]:
        """The answer, and whether it had to be asked for more than once. Raises Refused."""
        address, was_cut_off = draw.choice(self._serving), False
        while True:
            begun = self._streaming[address]
            try:
                told = await client.streamed(address, talk.messages, partial(begun.add, talk.number), **_FIELDS)
            except Broken as error:
                if address not in self._dead:
                    raise Refused(f"a shim that nobody killed broke off, {error}") from error
                was_cut_off = True
                address = draw.choice(self._serving)
            else:
                return told, was_cut_off
            finally:
                begun.discard(talk.number)

    async def _faults_of_session(self, talk: Talk, told: Told) -> list[str]:
        session = await self._records.session(told.id)
        if session is None:
            self._num_unseen += 1
            return []
        found = difference(talk.messages, session.token_ids[: told.appended + told.reused])
        return [f"another conversation: {found}"] if found else []


def _faults(talk: Talk, told: Told) -> Iterator[str]:
    if told.way != (NEXT if talk.num_answers else FIRST):
        yield f"{told.state}, {told.why}, and nothing had happened"
    else:
        yield from talk.faults(told)


def _faults_after_kill(talk: Talk, told: Told) -> Iterator[str]:
    if not talk.num_answers and told.way == FIRST:  # nobody has named a place of it
        return
    if told.state == "new" or told.why not in _WHY_AFTER_KILL:
        yield f"{told.state}, {told.why}, after a kill"
    due = 0 if told.why == AGAIN else talk.num_own
    if told.appended != due:
        yield f"{told.appended} tokens appended, and not {due}"
    behind = talk.length + talk.num_own if talk.num_answers else num_whole(talk.messages)
    if told.appended + told.reused != behind:
        yield f"{told.appended + told.reused} tokens before the answer, and not {behind}"
