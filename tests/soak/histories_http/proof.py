"""Histories are changed, sent again and judged by what their sessions hold; processes are killed meanwhile."""

import random
from typing import ClassVar

from tests.soak.histories_http.asking import Answer, Ask, Refusal, ask
from tests.soak.histories_http.conversation import Conversation
from tests.soak.histories_http.ground import Ground
from tests.soak.histories_http.judge import OTHER_TENANT
from tests.soak.histories_http.judged_run import JudgedProof, JudgedRun
from tests.soak.progress import Progress

_MOST_REFUSED = 0.05
_MOST_DENIED = 0.1
"""Of the requests of another tenant: where its tags were those of all, it would be some half."""


class HistoriesHttp(JudgedProof):
    """Clients that send their conversations whole and change them: messages are edited, dropped, swapped, duplicated,
    said in another role, written in another way; the same is asked by another tenant, of another model, twice at once,
    through two shims and two routers that are killed meanwhile. Every session's tokens are read in Redis, past the shim
    and the router, and read back by the chat template's own markers: roles and texts are those that were sent. Now and
    then a fresh session is told the same tokens and has to give the same answer. Exits with 1 when any session held
    anything else, when an answer's header and usage contradict each other, or when nothing was continued.
    """

    model_config = JudgedProof.named("histories-http")

    def run_on(self, made: Ground, progress: Progress) -> JudgedRun:
        return HistoriesRun(self, made, progress)


class HistoriesRun(JudgedRun):
    """Clients that change their conversations."""

    by_what: ClassVar = "by_change"

    async def converse(self, draw: random.Random) -> None:
        async def asks(given: Ask) -> Answer | Refusal:
            answer = await ask(self.http, self.ground, given, draw)
            await self.look(given, answer, draw)
            return answer

        await Conversation(draw, asks).hold()

    def check(self) -> None:
        num_foreign = sum(self.tally.outcomes[OTHER_TENANT].values())
        if self.judge.num_denied > _MOST_DENIED * num_foreign:
            self.tally.violate(f"{self.judge.num_denied} times another tenant was led to a session that is not its own")
        if self.judge.num_refused > _MOST_REFUSED * self.tally.num_counted:
            self.tally.violate(f"{self.judge.num_refused} requests did not fit: this tested too little")
