"""A turn at a place of a session: in the session itself where it is idle there, else in a fork of it."""

import secrets

import grpc

from kakeya._async.calls import AsyncCalls
from kakeya._async.history import AsyncHistory
from kakeya._async.session import AsyncSession
from kakeya._async.turn import AsyncTurn, is_unknown
from kakeya._spans._tracing import Span
from kakeya._transport._requests import fill
from kakeya._transport._retry import Deadline, Retry, leaves_operation_running
from kakeya.errors import RpcFailed
from kakeya_stubs.v1 import runtime_pb2


class AsyncPlaceTurn(AsyncTurn):
    """A turn whose session the runtime chooses: the one with the place, or a fork of it.

    Args:
        timeout_seconds: until the session is there.
        fork_id: request_id of the fork, where an earlier request has named it.

    Raises:
        InvalidRequest: a value does not fit its field.
    """

    def __init__(
        self,
        calls: AsyncCalls,
        session_id: str,
        boundary: int,
        token_ids: list[int],
        *,
        check_history: bool,
        timeout_seconds: float | None,
        fork_id: str | None = None,
    ) -> None:
        # The runtime itself checks where it begins: nothing is to be read before.
        history = AsyncHistory(calls, session_id, boundary, check=False)
        super().__init__(calls, history, token_ids, is_repeatable=True)
        self._source_id = session_id
        self._check_history = check_history
        self._timeout_seconds = timeout_seconds
        self._fork_id = fork_id or secrets.token_hex(16)
        self._may_be_forked = False
        fill(self.request.session, session_id=session_id, boundary=boundary, request_id=self._fork_id)

    def opening_deadline(self) -> Deadline:
        return self._calls.deadline(self._timeout_seconds)

    def retry(self, deadline: Deadline) -> Retry:
        return Retry(self.opening_deadline(), max_attempts=self._calls.max_attempts, may_go_on=True)

    async def in_parts(self, deadline: Deadline, parent: Span) -> None:
        message = "the runtime is of an older version, and has no turns at a place"
        raise RpcFailed(message, status=grpc.StatusCode.UNIMPLEMENTED)

    def lost(self, error: BaseException) -> None:
        self._may_be_forked |= leaves_operation_running(error) and not is_unknown(error)

    def failed(self) -> None:
        """Closes a fork that nobody knows of, or that has nothing new in it; never the session with the place."""
        is_empty_fork = self.session is not None and self.session.id != self._source_id and self.appended is None
        if is_empty_fork or (self.session is None and self._may_be_forked):
            self._calls.give_up(self._fork_id)

    def _expect(self, history_length: int | None) -> None:
        """The boundary says it."""

    def _enter(self, opened: runtime_pb2.CreateSessionResponse) -> None:
        if self.session is None or self.session.id != opened.session_id:
            self.session = AsyncSession(self._calls, opened.session_id, opened, check_history=self._check_history)
            self.history = self.session._history
