"""Sessions that are opened, by a call of their own or by the turn that is to be in them."""

import secrets

import grpc

from kakeya._async.calls import AsyncCalls, repeat
from kakeya._async.history import AsyncHistory
from kakeya._async.session import AsyncSession
from kakeya._async.turn import AsyncTurn, is_unknown
from kakeya._spans._tracing import Span
from kakeya._transport._requests import TokenIds, branch_off, fill, has_branched_off, overflow_policy, token_list
from kakeya._transport._retry import Deadline, Retry, leaves_operation_running
from kakeya.errors import RpcFailed
from kakeya_stubs.v1 import runtime_pb2


class AsyncOpening:
    """One session that is to be opened, however often that is tried: its request's id gets the same one again.

    Args:
        fork_from, boundary and the rest: as in `AsyncClient.create_session`.

    Raises:
        InvalidRequest: a value does not fit its field.
    """

    def __init__(
        self,
        calls: AsyncCalls,
        *,
        check_history: bool,
        eos_token_ids: TokenIds = (),
        ephemeral: bool = False,
        on_overflow: str | None = None,
        label: str | None = None,
        fork_from: AsyncSession | str | None = None,
        boundary: int | None = None,
        request_id: str | None = None,
        wait_for_capacity_seconds: float = 0.0,
        timeout_seconds: float | None = None,
        **fields: object,
    ) -> None:
        self.calls = calls
        self.request = runtime_pb2.CreateSessionRequest(
            eos_token_ids=token_list(eos_token_ids, "eos_token_ids"),
            request_id=secrets.token_hex(16),
            ephemeral=ephemeral,
        )
        self._is_shared = request_id is not None
        fill(self.request, request_id=request_id)
        fill(self.request, client_label=label, on_overflow=overflow_policy(on_overflow), **fields)
        self._check_history = check_history
        self._wait_for_capacity_seconds = wait_for_capacity_seconds
        self._timeout_seconds = timeout_seconds
        self._settle_until = 0.0
        if isinstance(fork_from, AsyncSession):
            self._settle_until = fork_from._history.settle_until
            boundary = fork_from._history.expected if boundary is None else boundary
            fork_from = fork_from.id
        branch_off(self.request, fork_from, boundary)

    def deadline(self) -> Deadline:
        """Of an attempt that begins now."""
        return self.calls.deadline(self._timeout_seconds, extra_seconds=self._wait_for_capacity_seconds)

    def retry(self, *, may_go_on: bool = False) -> Retry:
        """Beginning now."""
        retry = Retry(
            self.deadline(),
            max_attempts=self.calls.max_attempts,
            wait_for_capacity_seconds=self._wait_for_capacity_seconds,
            may_go_on=may_go_on,
        )
        retry.settling_until(self._settle_until)
        return retry

    def session(self, opened: runtime_pb2.CreateSessionResponse) -> AsyncSession:
        return AsyncSession(self.calls, opened.session_id, opened, check_history=self._check_history)

    async def open(self, *, parent: Span | None = None) -> AsyncSession:
        """Opens it by a call of its own; where no answer comes, it is closed if it is there. Raises KakeyaError."""
        retry = self.retry()

        async def attempt() -> runtime_pb2.CreateSessionResponse:
            try:
                response: runtime_pb2.CreateSessionResponse = await self.calls.unary(
                    "CreateSession", self.request, retry.deadline, parent=parent
                )
            except BaseException as error:
                retry.may_have_taken_effect |= leaves_operation_running(error)
                raise
            return response

        try:
            opened = await repeat(attempt, retry)
        except BaseException:
            if retry.may_have_taken_effect:
                self.give_up()
            raise
        session = self.session(opened)
        if not has_branched_off(self.request, opened):
            async with session:  # of no use any more
                message = "the runtime is of an older version, and cannot fork"
                raise RpcFailed(message, status=grpc.StatusCode.UNIMPLEMENTED)
        return session

    def give_up(self) -> None:
        """Has the session closed in the background, if there is one, and it cannot be another call's as well."""
        if not self._is_shared:
            self.calls.give_up(self.request.request_id)


class AsyncOpeningTurn(AsyncTurn):
    """A turn in a session that is opened for it."""

    def __init__(self, opening: AsyncOpening, token_ids: list[int]) -> None:
        # Nobody else knows that session, so nothing can have come between two attempts.
        history = AsyncHistory(opening.calls, "", 0, check=False)
        super().__init__(opening.calls, history, token_ids, is_repeatable=True)
        self._opening = opening
        self._may_be_open = False
        self.request.create.CopyFrom(opening.request)

    def opening_deadline(self) -> Deadline:
        return self._opening.deadline()

    def retry(self, deadline: Deadline) -> Retry:
        return self._opening.retry(may_go_on=True)

    async def in_parts(self, deadline: Deadline, parent: Span) -> None:
        session = await self._opening.open(parent=parent)
        self._is_in(session)
        await self._append(session, deadline, parent)

    def lost(self, error: BaseException) -> None:
        self._may_be_open |= leaves_operation_running(error) and not is_unknown(error)

    def failed(self) -> None:
        """Closes what nobody can go on with: a session that is unknown, or has nothing in it, or is for this turn."""
        is_of_no_use = self.appended is None or self._opening.request.ephemeral
        if self._may_be_open if self.session is None else is_of_no_use:
            self._opening.give_up()

    def _expect(self, history_length: int | None) -> None:
        """A new session begins where it begins."""

    def _enter(self, opened: runtime_pb2.CreateSessionResponse) -> None:
        if self.session is None or self.session.id != opened.session_id:
            self._is_in(self._opening.session(opened))

    def _is_in(self, session: AsyncSession) -> None:
        self.session, self.history = session, session._history
