"""A client that behaves, beside all those that do not: what it gets must not depend on them."""

import asyncio
import random
from dataclasses import dataclass
from typing import Any

import grpc

from kakeya_shared.errors import error_details
from kakeya_shared.errors.tree import Exhausted
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.v1 import runtime_pb2_grpc
from tests.fuzz.call_metadata import Metadata

_TURNS_PER_SESSION = 12
_CALL_SECONDS = 60.0


@dataclass(frozen=True)
class Turn:
    """What one turn gave."""

    token_ids: tuple[int, ...]
    history_length: int
    kv_live_bytes: int
    stop_reason: int


class Witness:
    """Turn n is the same whenever and beside whomever it is taken.

    Attributes:
        turns: what was given so far.
        sessions: its open session, for others to guess at.
        num_refused: sessions that it had to ask for again.
    """

    def __init__(self, channel: grpc.aio.Channel, metadata: Metadata, model: str) -> None:
        self._stub: Any = runtime_pb2_grpc.RuntimeServiceStub(channel)
        self._metadata = metadata
        self._model = model
        self._session = ""
        self._vocab_size = 0
        self.turns: list[Turn] = []
        self.sessions: list[str] = []
        self.num_refused = 0

    async def run(self, stop: asyncio.Event, pause_seconds: float) -> None:
        """Takes turns until `stop` is set. Any error is one that a client which behaves must not see."""
        while not stop.is_set():
            await self.take_turn()
            await asyncio.sleep(pause_seconds)
        await self.close()

    async def take_turn(self) -> None:
        number = len(self.turns)
        if number % _TURNS_PER_SESSION == 0:
            await self.close()
            await self._open()
        chance = random.Random(number)
        tokens = [chance.randrange(self._vocab_size) for _ in range(chance.randrange(1, 30))]
        await self._call("AppendTokens", api.AppendTokensRequest(session_id=self._session, token_ids=tokens))
        self.turns.append(await self._generate(number))

    async def close(self) -> None:
        if self._session:
            await self._call("CloseSession", api.CloseSessionRequest(session_id=self._session))
            self.sessions.remove(self._session)
            self._session = ""

    async def _open(self) -> None:
        while True:
            try:
                answer = await self._call("CreateSession", api.CreateSessionRequest(model=self._model))
                break
            except Exhausted as refusal:
                self.num_refused += 1
                await asyncio.sleep(refusal.retry_after_seconds or 0.1)
        self._session, self._vocab_size = answer.session_id, answer.vocab_size
        self.sessions.append(self._session)

    async def _generate(self, number: int) -> Turn:
        temperature = 0.9 if number % 2 else 0.0
        request = api.GenerateRequest(session_id=self._session, max_tokens=6, seed=number, temperature=temperature)
        call = self._stub.Generate(request, timeout=_CALL_SECONDS, metadata=self._metadata)
        answers = [answer async for answer in call]
        tokens = tuple(answer.token_id for answer in answers if answer.HasField("token_id"))
        done = answers[-1].done
        return Turn(tokens, done.history_length, done.kv_live_bytes, done.stop_reason)

    async def _call(self, method: str, request: Any) -> Any:
        try:
            return await getattr(self._stub, method)(request, timeout=_CALL_SECONDS, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise error_details.decode(error) or error from error
