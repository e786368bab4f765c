"""Histories are changed, sent again and judged by what their sessions hold; processes are killed meanwhile."""

import asyncio
import itertools
import random
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import ClassVar

import httpx
from redis.asyncio import Redis

from kakeya import AsyncClient
from kakeya_shared.settings.service import setting
from tests.soak.histories_http.asking import Answer, Ask, Refusal, ask
from tests.soak.histories_http.conversation import Conversation
from tests.soak.histories_http.ground import Ground, Records, ground
from tests.soak.histories_http.judge import OTHER_TENANT, STATES, Judge
from tests.soak.progress import Progress
from tests.soak.proof import SeededProof
from tests.soak.report import Report, Tally

_NUM_AT_ONCE = 8
_MOST_UNSEEN, _MOST_REFUSED = 0.02, 0.05
_MOST_DENIED = 0.1
"""Of the requests of another tenant: where its tags were those of all, it would be some half."""
_CLIENT_SECONDS = 60.0


class HistoriesHttp(SeededProof):
    """Clients that send their conversations whole and change them: messages are edited, dropped, swapped, duplicated,
    said in another role, written in another way; the same is asked by another tenant, of another model, twice at once,
    through two shims and two routers that are killed meanwhile. Every session's tokens are read in Redis, past the shim
    and the router, and read back by the chat template's own markers: roles and texts are those that were sent. Now and
    then a fresh session is told the same tokens and has to give the same answer. Exits with 1 when any session held
    anything else, when an answer's header and usage contradict each other, or when nothing was continued.
    """

    SEED: ClassVar = "SEED"
    model_config = SeededProof.named("histories-http")

    cases: int = setting(10_000, "requests that are judged", unit="requests", reason="each change some hundreds", ge=1)
    kills: int = setting(40, "of shims and routers, evenly over the run", unit="kills", reason="both often", ge=0)
    fresh: int = setting(20, "of so many answers one is asked of a fresh session, too", reason="it costs as much", ge=1)

    def prove(self, directory: Path, progress: Progress) -> Report:
        with ground(directory) as made:
            return asyncio.run(HistoriesRun(self, made, progress).run())


class HistoriesRun:
    """The clients, what kills beside them, and what was found."""

    def __init__(self, asked: HistoriesHttp, made: Ground, progress: Progress) -> None:
        self._asked, self._ground, self._progress = asked, made, progress
        self._tally = Tally()
        self._numbers = itertools.count()
        self._killed: list[str] = []

    async def run(self) -> Report:
        tally, began = self._tally, time.monotonic()
        self._progress.begin(self._asked.cases, "requests", lambda: tally.num_counted, lambda: tally.num_violations)
        async with AsyncExitStack() as stack:
            self._http = await stack.enter_async_context(httpx.AsyncClient(timeout=_CLIENT_SECONDS))
            store = await stack.enter_async_context(Redis.from_url(self._ground.made.redis.url, protocol=2))
            client = await stack.enter_async_context(AsyncClient(self._ground.made.address, max_attempts=20))
            clients = {tenant: client.with_api_key(key) for tenant, key in self._ground.keys.items()}
            self._judge = Judge(Records(store), clients, tally)
            async with asyncio.TaskGroup() as group:
                killing = group.create_task(self._kill())
                for _ in range(_NUM_AT_ONCE):
                    group.create_task(self._converse(killing))
        self._check()
        return self._report(time.monotonic() - began)

    async def _converse(self, killing: "asyncio.Task[None]") -> None:
        while self._tally.num_counted < self._asked.cases or not killing.done():
            draw = random.Random(f"{self._asked.seed}/{next(self._numbers)}")

            async def asks(given: Ask, draw: random.Random = draw) -> Answer | Refusal:
                answer = await ask(self._http, self._ground, given, draw)
                await self._judge.look(given, answer, asks_again=draw.randrange(self._asked.fresh) == 0)
                return answer

            await Conversation(draw, asks).hold()

    async def _kill(self) -> None:
        """Spread over the run."""
        draw = random.Random(self._asked.seed)
        for number in range(self._asked.kills):
            due = (number + 1) * self._asked.cases / (self._asked.kills + 1)
            while self._tally.num_counted < due:
                await asyncio.sleep(0.05)
            self._killed.append(await self._ground.kill_one(draw))

    def _check(self) -> None:
        """Else the rest means nothing."""
        states = self._tally.by_outcome()
        for state in STATES:
            if not states.get(state):
                self._tally.violate(f"nothing was {state}: this tested nothing")
        if self._judge.num_unseen > _MOST_UNSEEN * self._tally.num_counted:
            self._tally.violate(f"{self._judge.num_unseen} sessions were gone before they were looked at")
        num_foreign = sum(self._tally.outcomes[OTHER_TENANT].values())
        if self._judge.num_denied > _MOST_DENIED * num_foreign:
            self._tally.violate(
                f"{self._judge.num_denied} times another tenant was led to a session that is not its own"
            )
        if self._judge.num_refused > _MOST_REFUSED * self._tally.num_counted:
            self._tally.violate(f"{self._judge.num_refused} requests did not fit: this tested too little")
        if not self._judge.num_fresh:
            self._tally.violate("no fresh session was asked")

    def _report(self, seconds: float) -> Report:
        tally = self._tally
        facts = {
            "seed": self._asked.seed,
            "requests": tally.num_counted,
            "seconds": round(seconds, 1),
            "killed": {kind: self._killed.count(kind) for kind in ("router", "shim")},
            "asked_of_fresh_sessions": self._judge.num_fresh,
            "unseen": self._judge.num_unseen,
            "by_state": tally.by_outcome(),
            "by_reason": dict(tally.kinds.most_common()),
            "by_change": tally.by_what(),
        }
        return Report(facts, tally.violations, tally.num_violations, ())
