"""A turn whose session is looked for by tags, in the same call."""

import secrets
from collections.abc import Iterable, Mapping

import grpc

from kakeya._async.calls import AsyncCalls
from kakeya._async.history import AsyncHistory
from kakeya._async.opening import AsyncOpening, AsyncOpeningTurn
from kakeya._async.place import AsyncPlaceTurn
from kakeya._async.turn import AsyncTurn, is_unknown
from kakeya._spans._tracing import Span
from kakeya._transport._requests import fill, tag_list
from kakeya._transport._retry import Deadline, Retry, leaves_operation_running
from kakeya.errors import InvalidField, RpcFailed
from kakeya_stubs.v1 import runtime_pb2


class AsyncSearchTurn(AsyncTurn):
    """A turn until its search has told where it is; from then on it is a turn of that kind.

    Args:
        tags, model: as `find_session` takes them.
        expected: by the index of its tag, how many of the tokens lie before a place.
        opening: of the session that it is in where nothing is found; None: then it is nowhere.
        timeout_seconds: until the session is there, of one that is not opened.

    Raises:
        InvalidField: a value does not fit its field.
    """

    def __init__(
        self,
        calls: AsyncCalls,
        tags: Iterable[bytes],
        token_ids: list[int],
        *,
        model: str | None,
        expected: Mapping[int, int],
        opening: AsyncOpening | None,
        check_history: bool,
        timeout_seconds: float | None,
    ) -> None:
        super().__init__(calls, AsyncHistory(calls, "", 0, check=False), token_ids, is_repeatable=True)
        self._expected = dict(expected)
        self._opening = opening
        self._check_history = check_history
        self._timeout_seconds = timeout_seconds
        self._fork_id = secrets.token_hex(16)
        self._may_be_there = False
        search = self.request.search
        search.tags.extend(tag_list(tags))
        fill(search, model=model, request_id=self._fork_id)
        for tag_index, num_skipped in self._expected.items():
            fill(search.expected.add(), tag_index=tag_index, skipped_token_count=num_skipped)
        if self._expected and max(self._expected.values()) > len(token_ids):
            raise InvalidField("expected: more tokens than there are", metadata={"field": "expected"})
        if opening is not None:
            self.request.create.CopyFrom(opening.request)

    def found(self, found: runtime_pb2.FindSessionResponse) -> AsyncTurn:
        turn: AsyncTurn
        if self._opening is not None and not found.session_id:
            turn = AsyncOpeningTurn(self._opening, self._token_ids)
        else:
            turn = AsyncPlaceTurn(
                self._calls,
                found.session_id,
                found.place.history_length,
                self._token_ids[self._expected.get(found.tag_index, 0) :],
                check_history=self._check_history,
                timeout_seconds=self._timeout_seconds,
                fork_id=self._fork_id,
            )
        turn.request.start_tags.extend(self.request.start_tags)
        return turn

    def opening_deadline(self) -> Deadline:
        return self._opening.deadline() if self._opening is not None else self._calls.deadline(self._timeout_seconds)

    def retry(self, deadline: Deadline) -> Retry:
        if self._opening is not None:
            return self._opening.retry(may_go_on=True)
        return Retry(self.opening_deadline(), max_attempts=self._calls.max_attempts, may_go_on=True)

    async def in_parts(self, deadline: Deadline, parent: Span) -> None:
        raise RpcFailed(_TOO_OLD, status=grpc.StatusCode.UNIMPLEMENTED)

    def lost(self, error: BaseException) -> None:
        self._may_be_there |= leaves_operation_running(error) and not is_unknown(error)

    def failed(self) -> None:
        """Closes what an attempt has made of which nothing was heard."""
        if self._may_be_there:
            self._calls.give_up(self._fork_id)
            if self._opening is not None:
                self._opening.give_up()

    def _expect(self, history_length: int | None) -> None:
        """The search says where it begins."""

    def _enter(self, opened: runtime_pb2.CreateSessionResponse) -> None:
        """A runtime that passes over the search has opened a session without it."""
        self._may_be_there = True
        raise RpcFailed(_TOO_OLD, status=grpc.StatusCode.FAILED_PRECONDITION)


_TOO_OLD = "the runtime is of an older version, and does not look for the session of a turn"
