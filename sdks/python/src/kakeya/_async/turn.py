"""Turns in a session that is there, and what turns have in common: a generation that appends first."""

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import grpc

from kakeya._async.calls import AsyncCalls, AsyncStreamCall
from kakeya._async.history import AsyncHistory
from kakeya._spans._tracing import Span
from kakeya._transport._requests import fill
from kakeya._transport._retry import Deadline, Retry
from kakeya.errors import RpcFailed
from kakeya.results import AppendResult
from kakeya_stubs.v1 import runtime_pb2

if TYPE_CHECKING:
    from kakeya._async.session import AsyncSession


class AsyncTurn(ABC):
    """How a generation begins that appends tokens first.

    Attributes:
        session: that it is in; None until the runtime has said it.
        history: of that session.
        appended: what the append has answered; None until then.
        answer_start: the history length at which its Generate is gone on with; None: the history knows.
        request: the Turn. The same one is sent until the tokens are known to be appended.
        is_repeatable: the runtime can tell whether a Turn that got lost has taken place.
    """

    session: "AsyncSession | None" = None
    appended: AppendResult | None = None
    answer_start: int | None = None

    def __init__(self, calls: AsyncCalls, history: AsyncHistory, token_ids: list[int], *, is_repeatable: bool) -> None:
        self.history = history
        self._calls = calls
        self.is_repeatable = is_repeatable
        self._token_ids = token_ids
        self.request = runtime_pb2.TurnRequest(spans=[runtime_pb2.TokenSpan(token_ids=token_ids)])

    def send(self, generate: runtime_pb2.GenerateRequest, expected: int | None, deadline: Deadline) -> AsyncStreamCall:
        """Starts the Turn; where no history length is expected, that of the attempt before is."""
        if not self.request.HasField("generate"):
            self.request.generate.CopyFrom(generate)
            self.request.generate.ClearField("session_id")
        self._expect(expected)
        call = self._calls.stream("Turn", self.request, deadline)
        call.span.describe(self.request.spans[0])
        return call

    def hear(self, response: runtime_pb2.TurnResponse, span: Span) -> None:
        """What comes before what is generated; an event that this version does not know is passed over."""
        if response.HasField("session"):
            span.describe(response.session)
            self._enter(response.session)
        elif response.HasField("appended"):
            span.describe(response.appended)
            self.appended = AppendResult.from_wire(response.appended)
            self.answer_start = response.appended.history_length

    def found(self, found: runtime_pb2.FindSessionResponse) -> "AsyncTurn":
        """How it goes on once its search has come to this: of one without a search as it is."""
        return self

    def opening_deadline(self) -> Deadline:
        """Until when a Turn that is sent now must have its session; it may take longer for the rest."""
        return Deadline(None)

    @abstractmethod
    def retry(self, deadline: Deadline) -> Retry:
        """When it is sent again until its session is there.

        Args:
            deadline: of the whole turn.
        """

    @abstractmethod
    async def in_parts(self, deadline: Deadline, parent: Span) -> None:
        """Appends by a call of its own, to a runtime of a version without Turn. Raises KakeyaError."""

    @abstractmethod
    def lost(self, error: BaseException) -> None:
        """An attempt to begin it ended so."""

    @abstractmethod
    def failed(self) -> None:
        """It did not come to its end."""

    @abstractmethod
    def _expect(self, history_length: int | None) -> None:
        """The history length that it begins at."""

    @abstractmethod
    def _enter(self, opened: runtime_pb2.CreateSessionResponse) -> None:
        """The runtime says which session it is in."""

    async def _append(self, session: "AsyncSession", deadline: Deadline, parent: Span) -> None:
        remaining_seconds = deadline.remaining_seconds()
        timeout_seconds = math.inf if remaining_seconds is None else remaining_seconds
        self.appended = await session._append(self._token_ids, timeout_seconds, parent=parent)


def is_unknown(error: BaseException) -> bool:
    """Whether a Turn failed so because the runtime is of a version without it."""
    return isinstance(error, RpcFailed) and error.status is grpc.StatusCode.UNIMPLEMENTED


class AsyncSessionTurn(AsyncTurn):
    """A turn in a session that is there.

    Args:
        max_attempts: of its beginning; 1 where nothing can tell whether it took place.
    """

    def __init__(
        self,
        calls: AsyncCalls,
        session: "AsyncSession",
        history: AsyncHistory,
        token_ids: list[int],
        *,
        max_attempts: int,
    ) -> None:
        super().__init__(calls, history, token_ids, is_repeatable=max_attempts > 1)
        self.session = self._session = session
        self._max_attempts = max_attempts
        self.request.session.session_id = session.id

    def retry(self, deadline: Deadline) -> Retry:
        return Retry(deadline, max_attempts=self._max_attempts, may_go_on=True)

    async def in_parts(self, deadline: Deadline, parent: Span) -> None:
        await self._append(self._session, deadline, parent)

    def lost(self, error: BaseException) -> None:
        """The history knows."""

    def failed(self) -> None:
        """The session is the caller's."""

    def _enter(self, opened: runtime_pb2.CreateSessionResponse) -> None:
        """It is in that session anyway: without a boundary none is forked."""

    def _expect(self, history_length: int | None) -> None:
        fill(self.request.session, expected_history_length=history_length)
