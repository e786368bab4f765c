"""Trees of responses are grown and judged by what their sessions hold; processes are killed meanwhile."""

import asyncio
import random
from typing import ClassVar

from tests.soak.histories_http.asking import Answer, Ask
from tests.soak.histories_http.ground import TENANTS, Ground
from tests.soak.histories_http.judge import STATES
from tests.soak.histories_http.judged_run import JudgedProof, JudgedRun
from tests.soak.progress import Progress
from tests.soak.responses_http.asking import Client
from tests.soak.responses_http.tree import Tree


class ResponsesHttp(JudgedProof):
    """Clients that go on from stored responses by their ids: from the last one, older ones, one twice at once, and from
    one that was deleted, has expired or is another tenant's. Half of the answers are streams, which are cut behind some
    event and gone on with at any shim; shims and routers are killed meanwhile. Every session's tokens are read in
    Redis and read back by the chat template's own markers: they are the items of that branch. Now and then a fresh
    session is told the same tokens and has to give the same answer. Exits with 1 when any session held anything else,
    when a stream told an event twice or left one out, or told what is not stored.
    """

    model_config = JudgedProof.named("responses-http")

    def run_on(self, made: Ground, progress: Progress) -> JudgedRun:
        return ResponsesRun(self, made, progress)


class ResponsesRun(JudgedRun):
    """Clients that grow trees."""

    by_what: ClassVar = "by_kind"
    must_be: ClassVar = (*STATES, "previous_response_not_found")

    async def converse(self, draw: random.Random) -> None:
        async def look(given: Ask, answer: Answer) -> None:
            await self.look(given, answer, draw)

        own, other = (Client(self.http, self.ground, tenant) for tenant in draw.sample(TENANTS, 2))
        await Tree(draw, own, other, look, self._expire, self.tally).grow()

    async def _expire(self, tenant: str, response_id: str) -> None:
        """As if its time were over."""
        await self.store.pexpire(f"kakeya:{{objects:{tenant}}}:object:{response_id}", 1)
        await asyncio.sleep(0.01)

    def check(self) -> None:
        if not self.tally.kinds["resumed"]:
            self.tally.violate("no stream was gone on with")
