"""Makes the calls, counts what became of them, and learns from the answers."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

from tests.fuzz.attempts import Attempt
from tests.fuzz.known import Known, Lane
from tests.fuzz.methods import ADMIN, RUNTIME, VERIFIER
from tests.fuzz.request_bytes import max_message_bytes
from tests.fuzz.tally import FORBIDDEN, Tally

_OVERDUE_SECONDS = 10.0
_GONE = ("NOT_FOUND", "UNAVAILABLE")
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
    """Channels to the services, round robin.

    Args:
        routers, worker: addresses.
        num_channels: connections to each.
    """

    def __init__(self, routers: list[str], worker: str, known: Known, tally: Tally, num_channels: int = 4) -> None:
        self._known = known
        self._tally = tally
        self._routers = [_channel(address) for address in routers for _ in range(num_channels)]
        self._workers = [_channel(worker) for _ in range(num_channels)]
        self._on_ok: dict[tuple[str, str], Callable[[Any, Any], None]] = {
            (RUNTIME, "CreateSession"): self._session_created,
            (RUNTIME, "ForkSession"): self._session_forked,
            (RUNTIME, "CloseSession"): lambda request, _: known.forget_session(request.session_id),
            (ADMIN, "CloseSession"): lambda request, _: known.forget_session(request.session_id),
            (VERIFIER, "OpenSession"): self._lane_opened,
            (VERIFIER, "Append"): self._lane_grew,
            (VERIFIER, "CloseSession"): lambda request, _: known.forget_lane(request.session_id),
            (ADMIN, "CreateKey"): lambda _, answer: known.keys.append(answer.key.key_id),
            (ADMIN, "RevokeKey"): lambda request, _: _remove(known.keys, request.key_id),
            (ADMIN, "CreateToken"): lambda _, answer: known.tokens.append(answer.token.token_id),
            (ADMIN, "RevokeToken"): lambda request, _: _remove(known.tokens, request.token_id),
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
            if outcome.status == "OK":
                self._learn(attempt, outcome.answers)
            elif outcome.status in _GONE:
                self._forget(attempt)
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
        try:
            answers = await _read(call, attempt.num_reads) if streams else [await call]
        except asyncio.CancelledError:
            if not call.cancelled():
                raise  # this task is, not the call
            return Outcome("CANCELLED")
        except grpc.aio.AioRpcError as error:
            return Outcome(error.code().name, str(error.details()))
        finally:
            if timer is not None:
                timer.cancel()
        return Outcome("OK", answers=answers)

    def _judge(self, attempt: Attempt, outcome: Outcome) -> None:
        status = outcome.status
        if status in FORBIDDEN:
            self._tally.violate(f"{status} ({outcome.details}): {attempt}", f"{status} {attempt.path}")
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

    def _forget(self, attempt: Attempt) -> None:
        """A session or lane that is not there any more is not asked for again, but for its id."""
        session_id = getattr(attempt.message, "session_id", "")
        if attempt.method is not None and attempt.method.service == VERIFIER:
            self._known.forget_lane(session_id)
        else:
            self._known.forget_session(session_id)

    def _session_created(self, request: Any, answer: Any) -> None:
        self._learn_session(request, answer, request.fork_from.session_id)

    def _session_forked(self, request: Any, answer: Any) -> None:
        self._learn_session(request, answer.session, request.source.session_id)

    def _learn_session(self, request: Any, answer: Any, source_id: str) -> None:
        if answer.session_id not in self._known.sessions:
            self._known.sessions.append(answer.session_id)
        if source_id in self._known.foreign:
            self._tally.violate(f"{answer.session_id} branches off from another tenant's session")
        if request.HasField("ttl_seconds"):
            self._known.long_lived.add(answer.session_id)

    def _lane_opened(self, request: Any, answer: Any) -> None:
        self._known.forget_lane(request.session_id)
        self._known.lanes.append(Lane(request.session_id, request.epoch, answer.lane.history_length))

    def _lane_grew(self, request: Any, answer: Any) -> None:
        for lane in self._known.lanes:
            if lane.session_id == request.session_id:
                lane.history_length = answer.lane.history_length


async def _read(call: Any, num_reads: int | None) -> list[bytes]:
    answers: list[bytes] = []
    async for answer in call:
        answers.append(answer)
        if num_reads is not None and len(answers) > num_reads:
            call.cancel()
            break
    return answers


def _remove(names: list[str], name: str) -> None:
    if name in names:
        names.remove(name)


def _channel(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
