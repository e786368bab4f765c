"""A run whose clients' answers are judged by what their sessions hold, while shims and routers are killed."""

import asyncio
import itertools
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import ClassVar

import httpx
from redis.asyncio import Redis

from kakeya import AsyncClient
from kakeya_shared.settings.service import setting
from tests.soak.histories_http.asking import Answer, Ask, Refusal
from tests.soak.histories_http.ground import Ground, Records, ground
from tests.soak.histories_http.judge import STATES, Judge
from tests.soak.progress import Progress
from tests.soak.proof import SeededProof
from tests.soak.report import Report, Tally

_NUM_AT_ONCE = 8
_MOST_UNSEEN = 0.02
_CLIENT_SECONDS = 60.0


class JudgedProof(SeededProof):
    """Base of such proofs."""

    SEED: ClassVar = "SEED"

    cases: int = setting(10_000, "requests that are judged", unit="requests", reason="each kind some hundreds", ge=1)
    kills: int = setting(40, "of shims and routers, evenly over the run", unit="kills", reason="both often", ge=0)
    fresh: int = setting(20, "of so many answers one is asked of a fresh session, too", reason="it costs as much", ge=1)

    @abstractmethod
    def run_on(self, made: Ground, progress: Progress) -> "JudgedRun":
        """The run, on processes of its own."""

    def prove(self, directory: Path, progress: Progress) -> Report:
        with ground(directory) as made:
            return asyncio.run(self.run_on(made, progress).run())


class JudgedRun(ABC):
    """The clients, what kills beside them, and what was found.

    Attributes:
        by_what: names in the report what requests are counted by.
        must_be: what has to come of some request, else the run means nothing.
    """

    by_what: ClassVar[str]
    must_be: ClassVar[Sequence[str]] = STATES

    def __init__(self, asked: JudgedProof, made: Ground, progress: Progress) -> None:
        self.ground = made
        self.tally = Tally()
        self._asked, self._progress = asked, progress
        self._numbers = itertools.count()
        self._killed: list[str] = []

    @abstractmethod
    async def converse(self, draw: random.Random) -> None:
        """Some requests of a client, drawn by chance; `look` judges each answer."""

    @abstractmethod
    def check(self) -> None:
        """What else has to have come of it, else it means nothing."""

    async def look(self, given: Ask, answer: Answer | Refusal, draw: random.Random) -> None:
        await self.judge.look(given, answer, asks_again=draw.randrange(self._asked.fresh) == 0)

    async def run(self) -> Report:
        tally, began = self.tally, time.monotonic()
        self._progress.begin(self._asked.cases, "requests", lambda: tally.num_counted, lambda: tally.num_violations)
        async with AsyncExitStack() as stack:
            self.http = await stack.enter_async_context(httpx.AsyncClient(timeout=_CLIENT_SECONDS))
            self.store = await stack.enter_async_context(Redis.from_url(self.ground.made.redis.url, protocol=2))
            client = await stack.enter_async_context(AsyncClient(self.ground.made.address, max_attempts=20))
            clients = {tenant: client.with_api_key(key) for tenant, key in self.ground.keys.items()}
            self.judge = Judge(Records(self.store), clients, tally)
            async with asyncio.TaskGroup() as group:
                killing = group.create_task(self._kill())
                for _ in range(_NUM_AT_ONCE):
                    group.create_task(self._converse_on(killing))
        self._check()
        return self._report(time.monotonic() - began)

    async def _converse_on(self, killing: "asyncio.Task[None]") -> None:
        while self.tally.num_counted < self._asked.cases or not killing.done():
            await self.converse(random.Random(f"{self._asked.seed}/{next(self._numbers)}"))

    async def _kill(self) -> None:
        """Spread over the run."""
        draw = random.Random(self._asked.seed)
        for number in range(self._asked.kills):
            due = (number + 1) * self._asked.cases / (self._asked.kills + 1)
            while self.tally.num_counted < due:
                await asyncio.sleep(0.05)
            self._killed.append(await self.ground.kill_one(draw))

    def _check(self) -> None:
        states = self.tally.by_outcome()
        for state in self.must_be:
            if not states.get(state):
                self.tally.violate(f"nothing was {state}: this tested nothing")
        if self.judge.num_unseen > _MOST_UNSEEN * self.tally.num_counted:
            self.tally.violate(f"{self.judge.num_unseen} sessions were gone before they were looked at")
        self.check()
        if not self.judge.num_fresh:
            self.tally.violate("no fresh session was asked")

    def _report(self, seconds: float) -> Report:
        tally = self.tally
        facts = {
            "seed": self._asked.seed,
            "requests": tally.num_counted,
            "seconds": round(seconds, 1),
            "killed": {kind: self._killed.count(kind) for kind in ("router", "shim")},
            "asked_of_fresh_sessions": self.judge.num_fresh,
            "unseen": self.judge.num_unseen,
            "by_state": tally.by_outcome(),
            "by_reason": dict(tally.kinds.most_common()),
            self.by_what: tally.by_what(),
        }
        return Report(facts, tally.violations, tally.num_violations, ())
