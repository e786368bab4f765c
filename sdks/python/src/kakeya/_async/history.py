"""What the client knows of a session's history, so that each operation can say where it believes to start."""

from collections.abc import Callable
from time import monotonic
from typing import TypeVar

from kakeya._async.calls import AsyncCalls, repeat
from kakeya._spans._tracing import Span
from kakeya._transport._aio_transport import Eventual
from kakeya._transport._retry import SETTLE_SECONDS, Retry, leaves_operation_running
from kakeya.errors import Conflict, OperationStopped, Unavailable
from kakeya_stubs.v1 import runtime_pb2

T = TypeVar("T")


class AsyncHistory:
    """Runs the operations of one session and keeps its length true.

    Args:
        length: tokens so far; None where it is not known and must be read first.
        check: whether operations state the length they expect.

    Attributes:
        length: as above. It is None while an operation runs, and afterwards unless that succeeded.
        settle_until: until then (`time.monotonic`) an operation of ours may still be being stopped.
        has_answer: a generation has come to its end.
    """

    def __init__(self, calls: AsyncCalls, session_id: str, length: int | None, check: bool) -> None:
        self.length = length
        self._calls = calls
        self._session_id = session_id
        self._check = check
        self.settle_until = 0.0
        self.has_answer = False

    @property
    def expected(self) -> int | None:
        """The length to state beside a request; None where it is not known, or not to be checked."""
        return self.length if self._check else None

    async def operate(
        self, attempt: Callable[[int | None], Eventual[T]], retry: Retry, *, parent: Span | None = None
    ) -> T:
        """Runs `attempt(expected_history_length)`; after an operation of ours that was cancelled or lost it waits
        until the runtime has stopped that one.

        The attempt calls `settled` when it knows the new length.
        """
        expected, self.length = self.expected, None
        retry.settling_until(self.settle_until)

        async def attempt_once() -> T:
            nonlocal expected
            if expected is None and self._check:
                expected = await self._read_length(retry, parent)
            try:
                return await attempt(expected)
            except (Unavailable, OperationStopped):
                retry.effect_is_unknown()
                raise
            except Conflict:
                if not retry.may_have_taken_effect:
                    expected = None  # the operation that was in the way has moved it
                raise

        try:
            return await repeat(attempt_once, retry)
        except BaseException as error:
            self.lost(error)
            raise

    def settled(self, length: int) -> None:
        """An operation ended and the session has this many tokens."""
        self.length = length
        self.settle_until = 0.0

    def answered(self, length: int) -> None:
        """A generation has come to its end, and the session has this many tokens."""
        self.settled(length)
        self.has_answer = True

    def untouched(self, length: int | None) -> None:
        """The runtime never began the operation, before which the length was this."""
        self.length = length

    def lost(self, error: BaseException) -> None:
        """An operation ended with an error, on the runtime's side or on this."""
        self.length = None
        if leaves_operation_running(error):
            self.settle_until = monotonic() + SETTLE_SECONDS

    async def _read_length(self, retry: Retry, parent: Span | None) -> int:
        request = runtime_pb2.GetSessionInfoRequest(session_id=self._session_id)
        response = await self._calls.unary("GetSessionInfo", request, retry.deadline, parent=parent)
        return int(response.history_length)
