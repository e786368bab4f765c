"""Makes the calls, counts what became of them, and learns from the answers."""

import asyncio
import itertools
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc

from tests.integration.processes import Runtime
from tests.soak.fuzz.attempts import Attempt, CallMetadata
from tests.soak.fuzz.known import Known
from tests.soak.fuzz.methods import ADMIN, BY_PATH, RUNTIME, VERIFIER
from tests.soak.fuzz.request_bytes import max_message_bytes
from tests.soak.report import Tally

# No call may have these, whatever it asked for: both mean that nobody foresaw what happened.
_FORBIDDEN = ("INTERNAL", "UNKNOWN")
_OVERDUE_SECONDS = 10.0
_NUM_CHANNELS = 4
_GONE = ("NOT_FOUND", "UNAVAILABLE")
_TURN = f"/{RUNTIME}/Turn"
NOT_SENT = "not sent"
"""Instead of a status: the client's own gRPC refused to send it."""


@dataclass(frozen=True)
class Outcome:
    """Attributes:
    status: of gRPC, or `NOT_SENT`.
    answers: serialized.
    """

    status: str
    details: str = ""
    answers: list[bytes] = field(default_factory=list)


class Caller:
    """Four connections to each service, round robin."""

    def __init__(self, made: Runtime, known: Known, tally: Tally) -> None:
        self._known = known
        self._tally = tally
        self._routers = [_channel(router.address) for router in made.routers for _ in range(_NUM_CHANNELS)]
        self._workers = [_channel(worker.address) for worker in made.workers for _ in range(_NUM_CHANNELS)]
        self._numbers = itertools.count()
        self._on_ok: dict[tuple[str, str], Callable[[Any, Any], object]] = {
            (RUNTIME, "CreateSession"): lambda r, answer: self._learn_session(r, answer, r.fork_from.session_id),
            (RUNTIME, "ForkSession"): lambda r, answer: self._learn_session(r, answer.session, r.source.session_id),
            (RUNTIME, "Turn"): self._learn_turn,
            (RUNTIME, "CloseSession"): lambda request, _: known.forget_session(request.session_id),
            (ADMIN, "CloseSession"): lambda request, _: known.forget_session(request.session_id),
            (VERIFIER, "OpenSession"): known.lane_opened,
            (VERIFIER, "Append"): known.lane_grew,
            (VERIFIER, "CloseSession"): lambda request, _: known.forget_lane(request.session_id),
            (ADMIN, "CreateKey"): lambda _, answer: known.keys.setdefault(answer.key.key_id),
            (ADMIN, "RevokeKey"): lambda request, _: known.keys.pop(request.key_id, None),
            (ADMIN, "CreateToken"): lambda _, answer: known.tokens.setdefault(answer.token.token_id),
            (ADMIN, "RevokeToken"): lambda request, _: known.tokens.pop(request.token_id, None),
        }

    async def aclose(self) -> None:
        await asyncio.gather(*(channel.close() for channel in (*self._routers, *self._workers)))

    async def perform(self, attempt: Attempt) -> Outcome:
        started = time.monotonic()
        if attempt.method is not None and attempt.method.service == VERIFIER:
            self._known.at_worker.add(getattr(attempt.message, "session_id", ""))
        try:
            outcome = await self._call(attempt)
        except (ValueError, TypeError, UnicodeError) as error:
            outcome = Outcome(NOT_SENT, str(error))
        self._tally.count(attempt.path if attempt.method else "no such method", outcome.status, attempt.kind)
        if time.monotonic() - started > attempt.timeout_seconds + _OVERDUE_SECONDS:
            self._tally.violate(f"no answer long after its deadline: {attempt}")
        self._judge(attempt, outcome)
        if attempt.method is not None and attempt.message is not None:
            if outcome.status == "OK" or (attempt.path == _TURN and outcome.answers):
                self._learn(attempt, outcome.answers)  # a turn names its session first, whatever comes then
            elif outcome.status in _GONE:
                self._forget(attempt)
        return outcome

    async def order(
        self, path: str, metadata: CallMetadata, seconds: float, due: Collection[str] | None, fields: Mapping[str, Any]
    ) -> Outcome:
        """A request that is as it should be, whatever comes before it and beside it.

        Args:
            due: the statuses that it may have; None: any, as it only makes room.
        """
        method, kind = BY_PATH[path], "trim" if due is None else "wrong order"
        request = method.request(**fields)
        payload, number = request.SerializeToString(), next(self._numbers)
        attempt = Attempt(number, path, method, kind, payload, request, metadata, seconds)
        outcome = await self.perform(attempt)
        if due is not None and outcome.status not in due:
            self._tally.violate(f"{outcome.status} ({outcome.details}) where {due} is due: {attempt}", kind=path)
        return outcome

    async def _call(self, attempt: Attempt) -> Outcome:
        channels = self._workers if attempt.method and attempt.method.service == VERIFIER else self._routers
        channel = channels[attempt.number % len(channels)]
        streams = attempt.method is not None and attempt.method.streams
        start: Any = channel.unary_stream(attempt.path) if streams else channel.unary_unary(attempt.path)
        call = start(attempt.payload, timeout=attempt.timeout_seconds, metadata=attempt.metadata.pairs)
        timer = None
        if attempt.cancel_after_seconds is not None:
            timer = asyncio.get_running_loop().call_later(attempt.cancel_after_seconds, call.cancel)
        answers: list[bytes] = []
        try:
            if streams:
                await _read(call, attempt.num_reads, answers)
            else:
                answers.append(await call)
        except asyncio.CancelledError:
            if not call.cancelled():
                raise  # this task is, not the call
            return Outcome("CANCELLED", answers=answers)
        except grpc.aio.AioRpcError as error:
            return Outcome(error.code().name, str(error.details()), answers)
        finally:
            if timer is not None:
                timer.cancel()
        return Outcome("OK", answers=answers)

    def _judge(self, attempt: Attempt, outcome: Outcome) -> None:
        status = outcome.status
        if status in _FORBIDDEN:
            self._tally.violate(f"{status} ({outcome.details}): {attempt}", kind=f"{status} {attempt.path}")
        if not attempt.metadata.admits and status == "OK":
            self._tally.violate(f"let in with the wrong credentials: {attempt}")
        if attempt.metadata.kind == "plain" and status == "UNAUTHENTICATED":
            self._tally.violate(f"not let in with the right credentials: {attempt}")
        method = attempt.method
        if method is not None and len(attempt.payload) > max_message_bytes(method.service) and status == "OK":
            self._tally.violate(f"more than the largest message was taken: {attempt}")

    def _learn(self, attempt: Attempt, answers: list[bytes]) -> None:
        method = attempt.method
        assert method is not None
        learn = self._on_ok.get((method.service, method.name))
        if learn is not None:
            learn(attempt.message, method.response.FromString(answers[0]))

    def _learn_turn(self, request: Any, answer: Any) -> None:
        session = answer.session
        if request.session.session_id in self._known.foreign:
            self._tally.violate(f"{session.session_id}: a turn in another tenant's session")
        if request.close or session.ephemeral:
            return  # whether it is there still, its next call says
        self._learn_session(request.create, session, request.create.fork_from.session_id)
        if request.session.session_id in self._known.long_lived:
            self._known.long_lived.add(session.session_id)

    def _forget(self, attempt: Attempt) -> None:
        """A session or lane that is not there any more is not asked for again, but for its id."""
        message: Any = attempt.message
        session_id = message.session.session_id if attempt.path == _TURN else getattr(message, "session_id", "")
        if attempt.method is not None and attempt.method.service == VERIFIER:
            self._known.forget_lane(session_id)
        else:
            self._known.forget_session(session_id)

    def _learn_session(self, request: Any, answer: Any, source_id: str) -> None:
        if answer.session_id not in self._known.sessions:
            self._known.sessions.append(answer.session_id)
        if source_id in self._known.foreign:
            self._tally.violate(f"{answer.session_id} branches off from another tenant's session")
        if request.HasField("ttl_seconds"):
            self._known.long_lived.add(answer.session_id)


async def _read(call: Any, num_reads: int | None, answers: list[bytes]) -> None:
    """Into a list, so that those before an error count too."""
    async for answer in call:
        answers.append(answer)
        if num_reads is not None and len(answers) > num_reads:
            call.cancel()
            break


def _channel(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
