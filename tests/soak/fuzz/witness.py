"""The witness of the fuzzer: it takes turns."""

import asyncio
import random
from dataclasses import dataclass
from typing import Any

import grpc

from kakeya_shared.errors import error_details
from kakeya_shared.errors.tree import Exhausted
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.v1 import runtime_pb2_grpc
from tests.soak.fuzz.attempts import Metadata
from tests.soak.witness import Witness

_TURNS_PER_SESSION = 12
_CALL_SECONDS = 60.0


@dataclass(frozen=True)
class Turn:
    """What one turn gave."""

    token_ids: tuple[int, ...]
    history_length: int
    kv_live_bytes: int
    stop_reason: int


class TurnWitness(Witness[Turn]):
    """Turn n is the same whenever and beside whomever it is taken.

    Attributes:
        sessions: its open session, for others to guess at.
        num_refused: sessions that it had to ask for again because all lanes were taken.
    """

    def __init__(self, channel: grpc.aio.Channel, metadata: Metadata, model: str) -> None:
        super().__init__()
        self._stub: Any = runtime_pb2_grpc.RuntimeServiceStub(channel)
        self._options: dict[str, Any] = {"timeout": _CALL_SECONDS, "metadata": metadata}
        self._model = model
        self._vocab_size = 0
        self.sessions: list[str] = []
        self.num_refused = 0

    async def _answer(self, number: int) -> Turn:
        if number % _TURNS_PER_SESSION == 0:
            await self.close()
            await self._open()
        chance, (session_id,) = random.Random(number), self.sessions
        tokens = [chance.randrange(self._vocab_size) for _ in range(chance.randrange(1, 30))]
        await self._call("AppendTokens", api.AppendTokensRequest(session_id=session_id, token_ids=tokens))
        temperature = 0.9 if number % 2 else 0.0
        request = api.GenerateRequest(session_id=session_id, max_tokens=6, seed=number, temperature=temperature)
        answers = [answer async for answer in self._stub.Generate(request, **self._options)]
        tokens = [answer.token_id for answer in answers if answer.HasField("token_id")]
        done = answers[-1].done
        return Turn(tuple(tokens), done.history_length, done.kv_live_bytes, done.stop_reason)

    async def close(self) -> None:
        while self.sessions:
            await self._call("CloseSession", api.CloseSessionRequest(session_id=self.sessions[0]))
            self.sessions.clear()

    async def _open(self) -> None:
        while not self.sessions:
            try:
                answer = await self._call("CreateSession", api.CreateSessionRequest(model=self._model))
            except Exhausted as refusal:
                self.num_refused += 1
                await asyncio.sleep(refusal.retry_after_seconds or 0.1)
            else:
                self._vocab_size = answer.vocab_size
                self.sessions.append(answer.session_id)

    async def _call(self, method: str, request: Any) -> Any:
        try:
            return await getattr(self._stub, method)(request, **self._options)
        except grpc.aio.AioRpcError as error:
            raise error_details.decode(error) or error from error
