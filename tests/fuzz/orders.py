"""Calls in an order that no client should use, and what each of them must answer."""

import asyncio
import random
from collections.abc import Awaitable, Callable

from google.protobuf.message import Message

from kakeya_stubs.v1 import runtime_pb2 as api
from tests.fuzz.attempts import Attempt
from tests.fuzz.call_metadata import CallMetadata, Credentials
from tests.fuzz.caller import Caller, Outcome
from tests.fuzz.known import Known
from tests.fuzz.lane_orders import LaneOrders
from tests.fuzz.methods import BY_PATH, RUNTIME
from tests.fuzz.tally import Tally
from tests.integration.processes import bearer

_GONE = {"NOT_FOUND"}
_OR_GONE = {"OK", "NOT_FOUND", "CANCELLED"}
_OR_BUSY = {"OK", "ABORTED"}
_LANE_SHARE = 0.3
_OR_EXHAUSTED = {"OK", "RESOURCE_EXHAUSTED"}


class Orders:
    """Each order takes a session of its own; one that gets none because all lanes are taken ends there."""

    def __init__(self, caller: Caller, known: Known, credentials: Credentials, tally: Tally) -> None:
        self._caller = caller
        self._known = known
        self._tally = tally
        self._metadata = CallMetadata("plain", bearer(credentials.sessions), admits=True)
        self._number = 0
        self._lanes = LaneOrders(caller, known, tally)

    async def run(self, chance: random.Random) -> None:
        if chance.random() < _LANE_SHARE:
            await self._lanes.run(chance)
            return
        order = chance.choice(
            [
                self._generate_first,
                self._use_after_close,
                self._close_twice,
                self._all_at_once,
                self._close_in_mid,
                self._fork_in_mid,
            ]
        )
        created = await self._call("CreateSession", api.CreateSessionRequest(model=self._known.model), _OR_EXHAUSTED)
        if created.status == "OK":
            session_id = api.CreateSessionResponse.FromString(created.answers[0]).session_id
            self._known.sessions.remove(session_id)  # nobody else is to use it meanwhile
            await order(session_id, chance)
            await self._close(session_id, _OR_GONE)

    async def _generate_first(self, session_id: str, chance: random.Random) -> None:
        await self._generate(session_id, {"INVALID_ARGUMENT"})
        await self._append(session_id, [1], {"OK"})
        await self._generate(session_id, {"OK"})

    async def _use_after_close(self, session_id: str, chance: random.Random) -> None:
        await self._close(session_id, {"OK"})
        await self._append(session_id, [1], _GONE)
        await self._generate(session_id, _GONE)
        await self._call("GetSessionInfo", api.GetSessionInfoRequest(session_id=session_id), _GONE)

    async def _close_twice(self, session_id: str, chance: random.Random) -> None:
        await asyncio.gather(*(self._close(session_id, _OR_GONE) for _ in range(3)))
        await self._close(session_id, _GONE)

    async def _all_at_once(self, session_id: str, chance: random.Random) -> None:
        await self._append(session_id, [1, 2], {"OK"})
        calls: list[Callable[[], Awaitable[Outcome]]] = [
            lambda: self._append(session_id, [3] * chance.randrange(1, 50), _OR_BUSY),
            lambda: self._generate(session_id, _OR_BUSY),
            lambda: self._append(session_id, [], _OR_BUSY),
        ]
        await asyncio.gather(*(chance.choice(calls)() for _ in range(5)))

    async def _close_in_mid(self, session_id: str, chance: random.Random) -> None:
        await self._append(session_id, [1], {"OK"})
        generating = asyncio.create_task(self._generate(session_id, _OR_GONE, max_tokens=60_000))
        await asyncio.sleep(chance.uniform(0, 0.05))
        await self._close(session_id, {"OK"})
        await generating

    async def _fork_in_mid(self, session_id: str, chance: random.Random) -> None:
        """Whatever comes first: a source that moves on, or that is closed."""
        await self._append(session_id, [1, 2], {"OK"})
        fork = api.CreateSessionRequest(fork_from=api.ForkPoint(session_id=session_id))
        calls = [self._call("CreateSession", fork, _OR_BUSY | _OR_GONE | _OR_EXHAUSTED) for _ in range(3)]
        calls.append(self._append(session_id, [3] * 20, _OR_BUSY | _OR_GONE))
        if chance.random() < 0.5:
            calls.append(self._close(session_id, _OR_GONE))
        chance.shuffle(calls)
        await asyncio.gather(*calls)

    async def _append(self, session_id: str, tokens: list[int], expected: set[str]) -> Outcome:
        return await self._call(
            "AppendTokens", api.AppendTokensRequest(session_id=session_id, token_ids=tokens), expected
        )

    async def _generate(self, session_id: str, expected: set[str], max_tokens: int = 4) -> Outcome:
        request = api.GenerateRequest(session_id=session_id, max_tokens=max_tokens)
        return await self._call("Generate", request, expected)

    async def _close(self, session_id: str, expected: set[str]) -> Outcome:
        return await self._call("CloseSession", api.CloseSessionRequest(session_id=session_id), expected)

    async def _call(self, name: str, request: Message, expected: set[str]) -> Outcome:
        method = BY_PATH[f"/{RUNTIME}/{name}"]
        self._number += 1
        payload = request.SerializeToString()
        attempt = Attempt(
            self._number, method.path, method, "wrong order", payload, request, self._metadata, timeout_seconds=30
        )
        outcome = await self._caller.perform(attempt)
        if outcome.status not in expected:
            self._tally.violate(
                f"{outcome.status} ({outcome.details}) where {expected} is due: {attempt}", f"order {name}"
            )
        return outcome
