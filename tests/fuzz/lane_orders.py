"""The same on the worker itself, behind the routers' back."""

import asyncio
import random

from google.protobuf.message import Message

from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from tests.fuzz.attempts import Attempt
from tests.fuzz.call_metadata import CallMetadata
from tests.fuzz.caller import Caller, Outcome
from tests.fuzz.known import Known
from tests.fuzz.methods import BY_PATH, VERIFIER
from tests.fuzz.tally import Tally

_EPOCH = 3
_NUM_PROMPT = 4
_NUMBERS = (0, 1, 64, 65, 2**31, 2**53, 2**63, 2**64 - 1)
_UNBOUNDED_TOKENS = 100_000
# The worker may free the lane at any moment, since no lease covers it.
_OR_GONE = {"OK", "NOT_FOUND", "CANCELLED"}
_STALE = {"FAILED_PRECONDITION", "NOT_FOUND"}


class LaneOrders:
    """Each takes a lane of its own."""

    def __init__(self, caller: Caller, known: Known, tally: Tally) -> None:
        self._caller = caller
        self._known = known
        self._tally = tally
        self._number = 0

    async def run(self, chance: random.Random) -> None:
        order = chance.choice([self._acknowledge_anything, self._stop_in_mid, self._come_from_the_past])
        name = f"fuzz.order-{chance.getrandbits(64):016x}"
        opening = pb.OpenSessionRequest(session_id=name, epoch=_EPOCH)
        opened = await self._call("OpenSession", opening, {"OK", "RESOURCE_EXHAUSTED"})
        self._known.forget_lane(name)  # nobody else is to use it meanwhile
        if opened.status == "OK":
            tokens = [chance.randrange(500) for _ in range(_NUM_PROMPT)]
            append = pb.AppendRequest(session_id=name, epoch=_EPOCH, token_ids=tokens)
            await self._call("Append", append, _OR_GONE)
            await order(name, chance)
            await self._call("CloseSession", pb.CloseSessionRequest(session_id=name, epoch=_EPOCH), _OR_GONE)

    async def _acknowledge_anything(self, name: str, chance: random.Random) -> None:
        """Numbers that fall, and that nobody can have read, beside a stream that waits for them."""
        generating = self._generate(name, acknowledges=True)
        for _ in range(6):
            number = chance.choice(_NUMBERS)
            request = pb.AcknowledgeRequest(session_id=name, epoch=_EPOCH, num_tokens=number)
            await self._call("Acknowledge", request, {"OK", "NOT_FOUND", "INVALID_ARGUMENT"})
        await self._stop(name)
        await generating

    async def _stop_in_mid(self, name: str, chance: random.Random) -> None:
        generating = self._generate(name, acknowledges=False)
        await asyncio.sleep(chance.uniform(0, 0.05))
        await asyncio.gather(*(self._stop(name) for _ in range(2)))
        await generating

    async def _come_from_the_past(self, name: str, chance: random.Random) -> None:
        """Under another lease everything is refused, and the lane is as it was."""
        epoch = chance.choice((_EPOCH - 1, _EPOCH + 1))
        append = pb.AppendRequest(session_id=name, epoch=epoch, history_length=_NUM_PROMPT, token_ids=[1])
        await self._call("Append", append, _STALE)
        await self._call("Stop", pb.StopRequest(session_id=name, epoch=epoch), _STALE)
        await self._call("CloseSession", pb.CloseSessionRequest(session_id=name, epoch=epoch), _STALE)

    def _generate(self, name: str, *, acknowledges: bool) -> "asyncio.Task[Outcome]":
        request = pb.GenerateRequest(
            session_id=name,
            epoch=_EPOCH,
            history_length=_NUM_PROMPT,
            max_tokens=_UNBOUNDED_TOKENS,
            acknowledges=acknowledges,
            sampling=pb.Sampling(top_p=1.0),
        )
        # A stop that comes before it finds nothing to stop; then its deadline ends it.
        return asyncio.create_task(self._call("Generate", request, _OR_GONE | {"DEADLINE_EXCEEDED"}))

    async def _stop(self, name: str) -> None:
        await self._call("Stop", pb.StopRequest(session_id=name, epoch=_EPOCH), _OR_GONE)

    async def _call(self, name: str, request: Message, expected: set[str]) -> Outcome:
        method = BY_PATH[f"/{VERIFIER}/{name}"]
        self._number += 1
        nothing = CallMetadata("plain", (), admits=True)
        payload = request.SerializeToString()
        attempt = Attempt(self._number, method.path, method, "wrong order", payload, request, nothing)
        outcome = await self._caller.perform(attempt)
        if outcome.status not in expected:
            self._tally.violate(
                f"{outcome.status} ({outcome.details}) where {expected} is due: {attempt}", f"lane order {name}"
            )
        return outcome
