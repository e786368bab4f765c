"""A session on a runtime."""

from collections.abc import Iterable
from types import TracebackType
from typing import Self, Unpack

from kakeya._async.calls import AsyncCalls, repeat
from kakeya._async.generation import AsyncGeneration
from kakeya._async.history import AsyncHistory
from kakeya._async.options import SamplingOptions
from kakeya._async.turn import AsyncSessionTurn
from kakeya._spans._tracing import Span
from kakeya._transport._requests import TokenIds, check_names, fill, generate_request, tag_request, token_list
from kakeya._transport._retry import Retry
from kakeya.errors import KakeyaError, SessionNotFound
from kakeya.results import AppendResult, ParkResult, RewindResult, SessionInfo
from kakeya_stubs.v1 import runtime_pb2


class AsyncSession:
    """A conversation whose tokens and KV live on the server. Comes from a client's `create_session` or `session`.

    As a context manager it closes the session when it is left. One operation at a time runs on a session; a
    second one, from here or elsewhere, is refused with OperationRunning.

    Attributes:
        id: unguessable; a caller that has it can use the session.
        model: what serves it.
        sink: first tokens that are never evicted.
        window: last tokens that are kept.
        reserved_bytes: its whole lane, slack included.
        exact: whether its logits are the same to the bit however tokens are chunked and batched, and wherever it
            runs within one fingerprint.
        fingerprint: digest of all that the bits depend on, beside tokens, sink and window.
        vocab_size: of the model.
        ephemeral: the runtime closes it when its generation has ended.
        (All but the id are None on a session that was attached to.)
    """

    def __init__(
        self,
        calls: AsyncCalls,
        session_id: str,
        opened: runtime_pb2.CreateSessionResponse | None = None,
        *,
        check_history: bool = True,
    ) -> None:
        self.id = session_id
        self.model = opened.model if opened else None
        self.sink = opened.sink if opened else None
        self.window = opened.window if opened else None
        self.reserved_bytes = opened.reserved_bytes if opened else None
        self.exact = opened.exact if opened else None
        self.fingerprint = opened.fingerprint if opened else None
        self.vocab_size = opened.vocab_size if opened else None
        self.ephemeral = opened.ephemeral if opened else None
        self._calls = calls
        self._check_history = check_history
        self._history = AsyncHistory(calls, session_id, opened.history_length if opened else None, check_history)
        self._is_closed = False
        self._final_length: int | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except KakeyaError as failure:
            if error is None:
                raise
            error.add_note(f"closing the session failed too: {type(failure).__name__}: {failure}")

    @property
    def history_length(self) -> int | None:
        """Tokens so far; None where this client cannot know.

        That is while an operation runs, after one that did not succeed, and before the first on a session that
        was attached to. `info` always knows.
        """
        return self._history.length

    async def append(
        self, token_ids: TokenIds, *, logprobs: int | None = None, timeout_seconds: float | None = None
    ) -> AppendResult:
        """Appends tokens to the history and prefills their KV.

        Repeated by itself if the connection breaks: the expected history length that goes with it lets the
        runtime recognise tokens that are already there.

        Args:
            logprobs: fill the result's `details` with each token's log-probability, given all before it, and those of
                this many likeliest ids; at most 20, 0 for the token's alone.

        Raises:
            KakeyaError: an InvalidRequest before anything is sent if there is something other than ids in it.
        """
        return await self._append(token_list(token_ids), timeout_seconds, logprobs=logprobs)

    def generate(
        self, *, max_tokens: int, timeout_seconds: float | None = None, **options: Unpack[SamplingOptions]
    ) -> AsyncGeneration:
        """Generates from the end of the history, once the result is entered, iterated or collected.

        Args:
            max_tokens: at least 1.
            timeout_seconds: for the whole generation; None takes the client's default.
            options: how tokens are chosen; see `kakeya._async.options.SamplingOptions`.

        Raises:
            InvalidField: a value does not fit its field. Whatever else is wrong comes with the first answer.
        """
        check_names("generate", options, SamplingOptions)
        request = generate_request(self.id, max_tokens=max_tokens, **options)
        return AsyncGeneration(self._calls, self._history, request, session=self, timeout_seconds=timeout_seconds)

    def turn(
        self,
        token_ids: TokenIds,
        *,
        max_tokens: int,
        timeout_seconds: float | None = None,
        **options: Unpack[SamplingOptions],
    ) -> AsyncGeneration:
        """Appends tokens and generates, as `append` and `generate`, in one call; the timeout is for both.

        All of it is checked before the tokens are appended. The options are those of `generate`.
        """
        check_names("turn", options, SamplingOptions)
        ids = token_list(token_ids)
        request = generate_request(self.id, max_tokens=max_tokens, **options)
        return AsyncGeneration(
            self._calls,
            self._history,
            request,
            session=self,
            timeout_seconds=timeout_seconds,
            turn=AsyncSessionTurn(self._calls, self, self._history, ids, max_attempts=self._max_attempts),
        )

    async def rewind(
        self, history_length: int, *, only_untagged: bool = False, op_id: str = "", timeout_seconds: float | None = None
    ) -> RewindResult:
        """Takes the last tokens of the history back, down to a length, as if they had never been.

        Any length is reachable while the session has forgotten nothing, later at least the ends of its last four turns.
        Refused where a place beyond has tags (`only_untagged`), or another operation than `op_id` is the latest.

        Raises:
            KakeyaError: BoundaryNotReachable, whose `metadata` lists what is reachable; nothing has changed then.
        """
        request = runtime_pb2.RewindSessionRequest(session_id=self.id)
        fill(request, target_length=history_length, only_untagged=only_untagged, op_id=op_id)
        deadline = self._calls.operation_deadline(timeout_seconds)
        retry = Retry(deadline, max_attempts=self._calls.max_attempts, may_go_on=True)

        async def attempt(expected: int | None) -> RewindResult:
            fill(request, expected_history_length=expected)
            response = await self._calls.unary("RewindSession", request, retry.deadline)
            self._history.settled(response.history_length)
            return RewindResult.from_wire(response)

        return await self._history.operate(attempt, retry)

    async def tag(
        self,
        kind: str,
        history_length: int,
        tags: Iterable[bytes],
        *,
        op_id: str | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        """Gives a place of the history tags, by which a client's `find_session` finds it. Repeated, it changes nothing.

        Args:
            kind: a PlaceKind: "answer_start" or "answer_end" of the last answer, or the "head" before it.
            history_length: tokens before the place.
            tags: one to four, of 32 bytes each.
            op_id: of the generation whose answer it is; may be None for a head.

        Raises KakeyaError: BoundaryNotReachable where the history has gone on or was taken back since.
        """
        request = tag_request(self.id, kind, history_length, tags, op_id)
        await self._calls.repeated("TagTurn", request, timeout_seconds)

    async def info(self, *, timeout_seconds: float | None = None) -> SessionInfo:
        """Describes the session: waits for no running operation, does not count as use. Raises KakeyaError."""
        request = runtime_pb2.GetSessionInfoRequest(session_id=self.id)
        response = await self._calls.repeated("GetSessionInfo", request, timeout_seconds)
        return SessionInfo.from_wire(response)

    async def park(self, *, timeout_seconds: float | None = None) -> ParkResult:
        """Gives the session's lane to others until its next call, which gives it one again and takes longer for that.

        Raises:
            KakeyaError: OperationRunning while one runs; SnapshotStoreUnavailable where its history would not be kept.
                The session then stays as it is.
        """
        request = runtime_pb2.ParkSessionRequest(session_id=self.id)
        retry = Retry(self._calls.deadline(timeout_seconds), max_attempts=self._calls.max_attempts)
        retry.settling_until(self._history.settle_until)
        response = await repeat(lambda: self._calls.unary("ParkSession", request, retry.deadline), retry)
        return ParkResult.from_wire(response)

    async def close(self, *, timeout_seconds: float | None = None) -> int | None:
        """Frees the session's lane; a running operation ends with SessionClosed. Raises KakeyaError.

        Returns:
            The final history length; None if the runtime did not have the session any more. The second time, and of
            an ephemeral session that has answered, nothing happens and the answer is the same.
        """
        if self.ephemeral and self._history.has_answer:
            self._is_closed, self._final_length = True, self._history.length
        if self._is_closed:
            return self._final_length
        request = runtime_pb2.CloseSessionRequest(session_id=self.id)
        try:
            response = await self._calls.repeated("CloseSession", request, timeout_seconds)
        except SessionNotFound:
            self._is_closed = True
            return None
        self._is_closed, self._final_length = True, response.final_history_length
        return self._final_length

    @property
    def _max_attempts(self) -> int:
        """Of what appends, which without a length to go by is not safe to repeat."""
        return self._calls.max_attempts if self._check_history else 1

    async def _append(
        self,
        token_ids: list[int],
        timeout_seconds: float | None,
        *,
        logprobs: int | None = None,
        parent: Span | None = None,
    ) -> AppendResult:
        request = runtime_pb2.AppendTokensRequest(session_id=self.id, token_ids=token_ids)
        fill(request, logprobs=logprobs)
        deadline = self._calls.operation_deadline(timeout_seconds)
        retry = Retry(deadline, max_attempts=self._max_attempts, may_go_on=True)

        async def attempt(expected: int | None) -> AppendResult:
            fill(request, expected_history_length=expected)
            response = await self._calls.unary("AppendTokens", request, deadline, parent=parent)
            self._history.settled(response.history_length)
            return AppendResult.from_wire(response, token_ids)

        return await self._history.operate(attempt, retry, parent=parent)
