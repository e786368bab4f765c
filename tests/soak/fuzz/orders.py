"""Calls in an order that no client should use, and what each of them must answer; and calls that make room."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.worker.v1 import verifier_pb2
from tests.integration.processes import bearer
from tests.soak.fuzz.attempts import CallMetadata, Credentials
from tests.soak.fuzz.caller import Caller, Outcome
from tests.soak.fuzz.known import MAX_LIVE_LANES, MAX_LIVE_SESSIONS, Known
from tests.soak.fuzz.methods import RUNTIME, VERIFIER

_OK, _GONE = {"OK"}, {"NOT_FOUND"}
_OR_GONE = {"OK", "NOT_FOUND", "CANCELLED"}
_OR_BUSY = {"OK", "ABORTED"}
_OR_EXHAUSTED = {"OK", "RESOURCE_EXHAUSTED"}
_STALE = {"FAILED_PRECONDITION", "NOT_FOUND"}
# One call after the other, each with what it must be answered.
_IN_TURN = (
    (("Generate", {"INVALID_ARGUMENT"}), ("AppendTokens", _OK), ("Generate", _OK)),
    (("CloseSession", _OK), ("AppendTokens", _GONE), ("Generate", _GONE), ("GetSessionInfo", _GONE)),
)
_USUAL: dict[str, dict[str, Any]] = {"AppendTokens": {"token_ids": [1]}, "Generate": {"max_tokens": 4}}
_LANE_SHARE = 0.3
_ABANDONED_SHARE = 0.3
# On a lane the deadline ends what nobody stops.
_CALL_SECONDS = {RUNTIME: 30.0, VERIFIER: 4.0}
_EPOCH = 3
_NUM_PROMPT = 4
_ACKNOWLEDGED = (0, 1, 64, 65, 2**31, 2**53, 2**63, 2**64 - 1)
_UNBOUNDED_TOKENS = 100_000


class Orders:
    """Each order takes a session or a lane of its own; one that gets none because all lanes are taken ends there."""

    def __init__(self, caller: Caller, known: Known, credentials: Credentials) -> None:
        self._caller = caller
        self._known = known
        self._metadata = {
            RUNTIME: CallMetadata("plain", bearer(credentials.sessions), admits=True),
            VERIFIER: CallMetadata("plain", (), admits=True),
        }

    async def run(self, chance: random.Random) -> None:
        if chance.random() < _LANE_SHARE:
            await self._run_on_lane(chance)
            return
        created = await self._call(RUNTIME, "CreateSession", _OR_EXHAUSTED, model=self._known.model)
        if created.status == "OK":
            session_id = api.CreateSessionResponse.FromString(created.answers[0]).session_id
            self._known.sessions.remove(session_id)  # nobody else is to use it meanwhile
            at_once = (self._close_twice, self._all_at_once, self._close_in_mid, self._fork_in_mid)
            order = chance.choice((*_IN_TURN, *at_once))
            if callable(order):
                await order(session_id, chance)
            else:
                for name, due in order:
                    await self._on(session_id, name, due)
            await self._on(session_id, "CloseSession", _OR_GONE)

    async def trim(self, chance: random.Random) -> None:
        """Closes the oldest of too many sessions and lanes, or leaves it to the runtime's own clocks."""
        known = self._known
        if len(known.sessions) > MAX_LIVE_SESSIONS:
            oldest = known.sessions[0]
            abandons = oldest not in known.long_lived and chance.random() < _ABANDONED_SHARE
            known.forget_session(oldest)
            if not abandons:
                await self._on(oldest, "CloseSession")
        if len(known.lanes) > MAX_LIVE_LANES:
            lane = known.lanes.pop(0)
            if chance.random() >= _ABANDONED_SHARE:
                await self._call(VERIFIER, "CloseSession", session_id=lane.session_id, epoch=lane.epoch)

    async def close_long_lived(self) -> None:
        """All that no clock of this run would end."""
        for session_id in list(self._known.long_lived):
            self._known.forget_session(session_id)
            await self._on(session_id, "CloseSession")

    async def _close_twice(self, session_id: str, chance: random.Random) -> None:
        await asyncio.gather(*(self._on(session_id, "CloseSession", _OR_GONE) for _ in range(3)))
        await self._on(session_id, "CloseSession", _GONE)

    async def _all_at_once(self, session_id: str, chance: random.Random) -> None:
        await self._on(session_id, "AppendTokens", _OK, token_ids=[1, 2])
        calls: list[Callable[[], Awaitable[Outcome]]] = [
            lambda: self._on(session_id, "AppendTokens", _OR_BUSY, token_ids=[3] * chance.randrange(1, 50)),
            lambda: self._on(session_id, "Generate", _OR_BUSY),
            lambda: self._on(session_id, "AppendTokens", _OR_BUSY, token_ids=[]),
        ]
        await asyncio.gather(*(chance.choice(calls)() for _ in range(5)))

    async def _close_in_mid(self, session_id: str, chance: random.Random) -> None:
        await self._on(session_id, "AppendTokens", _OK)
        generating = asyncio.create_task(self._on(session_id, "Generate", _OR_GONE, max_tokens=60_000))
        await asyncio.sleep(chance.uniform(0, 0.05))
        await self._on(session_id, "CloseSession", _OK)
        await generating

    async def _fork_in_mid(self, session_id: str, chance: random.Random) -> None:
        """Whatever comes first: a source that moves on, or that is closed."""
        await self._on(session_id, "AppendTokens", _OK, token_ids=[1, 2])
        fork_from, due = api.ForkPoint(session_id=session_id), _OR_BUSY | _OR_GONE | _OR_EXHAUSTED
        calls = [self._call(RUNTIME, "CreateSession", due, fork_from=fork_from) for _ in range(3)]
        calls.append(self._on(session_id, "AppendTokens", _OR_BUSY | _OR_GONE, token_ids=[3] * 20))
        if chance.random() < 0.5:
            calls.append(self._on(session_id, "CloseSession", _OR_GONE))
        chance.shuffle(calls)
        await asyncio.gather(*calls)

    async def _on(self, session_id: str, name: str, due: set[str] | None = None, **fields: Any) -> Outcome:
        return await self._call(RUNTIME, name, due, session_id=session_id, **(_USUAL.get(name, {}) | fields))

    async def _run_on_lane(self, chance: random.Random) -> None:
        """On the worker itself, behind the routers' back, which may free the lane at any moment: no lease covers it."""
        order = chance.choice((self._acknowledge_anything, self._stop_in_mid, self._come_from_the_past))
        lane = {"session_id": f"fuzz.order-{chance.getrandbits(64):016x}", "epoch": _EPOCH}
        opened = await self._call(VERIFIER, "OpenSession", _OR_EXHAUSTED, **lane)
        self._known.forget_lane(str(lane["session_id"]))  # nobody else is to use it meanwhile
        if opened.status == "OK":
            tokens = [chance.randrange(500) for _ in range(_NUM_PROMPT)]
            await self._call(VERIFIER, "Append", _OR_GONE, **lane, token_ids=tokens)
            await order(lane, chance)
            await self._call(VERIFIER, "CloseSession", _OR_GONE, **lane)

    async def _acknowledge_anything(self, lane: Mapping[str, Any], chance: random.Random) -> None:
        """Numbers that fall, and that nobody can have read, beside a stream that waits for them."""
        generating = self._generate_on(lane, acknowledges=True)
        for _ in range(6):
            due, number = {"OK", "NOT_FOUND", "INVALID_ARGUMENT"}, chance.choice(_ACKNOWLEDGED)
            await self._call(VERIFIER, "Acknowledge", due, **lane, num_tokens=number)
        await self._call(VERIFIER, "Stop", _OR_GONE, **lane)
        await generating

    async def _stop_in_mid(self, lane: Mapping[str, Any], chance: random.Random) -> None:
        generating = self._generate_on(lane, acknowledges=False)
        await asyncio.sleep(chance.uniform(0, 0.05))
        await asyncio.gather(*(self._call(VERIFIER, "Stop", _OR_GONE, **lane) for _ in range(2)))
        await generating

    async def _come_from_the_past(self, lane: Mapping[str, Any], chance: random.Random) -> None:
        """Under another lease everything is refused, and the lane is as it was."""
        stale = {**lane, "epoch": chance.choice((_EPOCH - 1, _EPOCH + 1))}
        await self._call(VERIFIER, "Append", _STALE, **stale, history_length=_NUM_PROMPT, token_ids=[1])
        await self._call(VERIFIER, "Stop", _STALE, **stale)
        await self._call(VERIFIER, "CloseSession", _STALE, **stale)

    def _generate_on(self, lane: Mapping[str, Any], *, acknowledges: bool) -> "asyncio.Task[Outcome]":
        how = {"max_tokens": _UNBOUNDED_TOKENS, "sampling": verifier_pb2.Sampling(top_p=1.0)}
        # A stop that comes before it finds nothing to stop; then its deadline ends it.
        due = _OR_GONE | {"DEADLINE_EXCEEDED"}
        fields = {**lane, **how, "history_length": _NUM_PROMPT, "acknowledges": acknowledges}
        return asyncio.create_task(self._call(VERIFIER, "Generate", due, **fields))

    async def _call(self, service: str, name: str, due: set[str] | None = None, **fields: Any) -> Outcome:
        metadata, seconds = self._metadata[service], _CALL_SECONDS[service]
        return await self._caller.order(f"/{service}/{name}", metadata, seconds, due, fields)
