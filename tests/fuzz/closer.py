"""Closes what the fuzzer opened, so that there is room; some it leaves to the runtime's own clocks."""

import random

from google.protobuf.message import Message

from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.worker.v1 import verifier_pb2
from tests.fuzz.attempts import Attempt
from tests.fuzz.call_metadata import CallMetadata, Credentials
from tests.fuzz.caller import Caller
from tests.fuzz.known import MAX_LIVE_LANES, MAX_LIVE_SESSIONS, Known, Lane
from tests.fuzz.methods import BY_PATH, RUNTIME, VERIFIER
from tests.integration.processes import bearer

_ABANDONED_SHARE = 0.3


class Closer:
    def __init__(self, caller: Caller, known: Known, credentials: Credentials) -> None:
        self._caller = caller
        self._known = known
        self._metadata = CallMetadata("plain", bearer(credentials.sessions), admits=True)

    async def trim(self, chance: random.Random) -> None:
        """Closes or abandons the oldest of too many."""
        known = self._known
        if len(known.sessions) > MAX_LIVE_SESSIONS:
            oldest = known.sessions[0]
            abandons = oldest not in known.long_lived and chance.random() < _ABANDONED_SHARE
            known.forget_session(oldest)
            if not abandons:
                await self._close_session(oldest)
        if len(known.lanes) > MAX_LIVE_LANES:
            lane = known.lanes.pop(0)
            if chance.random() >= _ABANDONED_SHARE:
                await self._close_lane(lane)

    async def close_long_lived(self) -> None:
        """All that no clock of this run would end."""
        for session_id in list(self._known.long_lived):
            self._known.forget_session(session_id)
            await self._close_session(session_id)

    async def _close_session(self, session_id: str) -> None:
        await self._call(RUNTIME, api.CloseSessionRequest(session_id=session_id))

    async def _close_lane(self, lane: Lane) -> None:
        await self._call(VERIFIER, verifier_pb2.CloseSessionRequest(session_id=lane.session_id, epoch=lane.epoch))

    async def _call(self, service: str, request: Message) -> None:
        method = BY_PATH[f"/{service}/CloseSession"]
        payload = request.SerializeToString()
        attempt = Attempt(0, method.path, method, "trim", payload, request, self._metadata, timeout_seconds=30)
        await self._caller.perform(attempt)
