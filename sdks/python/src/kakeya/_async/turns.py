"""Turns that a client asks for in one call: in a session that it opens, finds, or knows by a place."""

from collections.abc import Iterable, Mapping
from typing import Any, Unpack

from google.protobuf.message import DecodeError

from kakeya._async.calls import AsyncCalls
from kakeya._async.generation import AsyncGeneration
from kakeya._async.opening import AsyncOpening, AsyncOpeningTurn
from kakeya._async.options import SamplingOptions, TurnOptions
from kakeya._async.place import AsyncPlaceTurn
from kakeya._async.search import AsyncSearchTurn
from kakeya._async.session import AsyncSession
from kakeya._async.turn import AsyncTurn
from kakeya._transport._requests import TokenIds, check_names, generate_request, tag_list, token_list
from kakeya.errors import InvalidRequest
from kakeya_stubs.v1 import runtime_pb2


class AsyncTurns:
    """Base of a client: turns whose session is not at hand."""

    _calls: AsyncCalls
    _check_history: bool

    def turn(
        self,
        token_ids: TokenIds,
        *,
        max_tokens: int,
        ephemeral: bool = True,
        start_tags: Iterable[bytes] = (),
        open_timeout_seconds: float | None = None,
        timeout_seconds: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> AsyncGeneration:
        """Opens a session, appends, generates and closes it, in one call, once the result is entered or iterated.

        Args:
            ephemeral: the session is closed when the generation has ended, in whatever way. False leaves it open: the
                result's `session` goes on with it.
            start_tags: of the place where the answer begins, as `AsyncSession.tag` gives them, in the same call. Of a
                runtime whose models name the feature "turn-search"; others pass them over.
            open_timeout_seconds: until the session is there, as `timeout_seconds` of `create_session`.
            timeout_seconds: for the whole turn; None takes the client's `operation_timeout_seconds`.
            options: of the session as in `create_session`, of the answer as in `AsyncSession.generate`.

        A session of which no answer was seen, or that the turn has failed to append to, is closed in the background.

        Raises:
            InvalidRequest: a value does not fit its field. Whatever else is wrong comes with the first answer.
        """
        check_names("turn", options, TurnOptions)
        session_options, sampling = _parted(options)
        opening = self._opening(ephemeral, open_timeout_seconds, session_options)
        turn = AsyncOpeningTurn(opening, token_list(token_ids))
        return self._generation(turn, max_tokens, timeout_seconds, start_tags, sampling)

    def turn_at(
        self,
        session_id: str,
        boundary: int,
        token_ids: TokenIds,
        *,
        max_tokens: int,
        start_tags: Iterable[bytes] = (),
        open_timeout_seconds: float | None = None,
        timeout_seconds: float | None = None,
        **options: Unpack[SamplingOptions],
    ) -> AsyncGeneration:
        """A turn behind so many tokens of a session: in that itself where it ends there and is idle, else in a fork.

        The `session` of the result says which, once it has begun. There may be no tokens to append; the rest is as in
        `turn`.
        """
        check_names("turn_at", options, SamplingOptions)
        turn = AsyncPlaceTurn(
            self._calls,
            session_id,
            boundary,
            token_list(token_ids),
            check_history=self._check_history,
            timeout_seconds=open_timeout_seconds,
        )
        return self._generation(turn, max_tokens, timeout_seconds, start_tags, options)

    def turn_found(
        self,
        tags: Iterable[bytes],
        token_ids: TokenIds,
        *,
        expected: Mapping[int, int],
        opens: bool,
        max_tokens: int,
        start_tags: Iterable[bytes] = (),
        open_timeout_seconds: float | None = None,
        timeout_seconds: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> AsyncGeneration:
        """A turn in the session that tags find, as `find_session` finds it, looked for in the same call.

        Its beginning raises FoundElsewhere, and nothing has changed, where what is found is not expected, or would have
        to be rewound first. `found` of the result is what was found, then too. The rest is as in `turn_at`.

        Args:
            tags: as `find_session` takes them.
            expected: by the index of its tag, each place that the tokens are for, and how many of them, from the
                first, lie before it.
            opens: where nothing is found it is in a new session, which stays open, with these options.
            options: of the session as in `create_session`; where it opens none the model alone counts.

        Raises:
            InvalidRequest: a value does not fit its field.
        """
        check_names("turn_found", options, TurnOptions)
        session_options, sampling = _parted(options)
        turn = AsyncSearchTurn(
            self._calls,
            tags,
            token_list(token_ids),
            model=options.get("model"),
            expected=expected,
            opening=self._opening(False, open_timeout_seconds, session_options) if opens else None,
            check_history=self._check_history,
            timeout_seconds=open_timeout_seconds,
        )
        return self._generation(turn, max_tokens, timeout_seconds, start_tags, sampling)

    def go_on(self, resumption: bytes, answer_start: int, *, timeout_seconds: float | None = None) -> AsyncGeneration:
        """A generation that another process has begun, from its first token on; that one hears no more of it.

        What was generated stands; the rest follows. It may have come to its end. Only the session's latest operation
        can be gone on with, and only while the runtime has all of its tokens.

        Args:
            resumption: `AsyncGeneration.resumption` there.
            answer_start: the history length at which it began.

        Raises:
            InvalidRequest: it is none. The first answer raises HistoryLengthMismatch where another operation has come
                since, SessionNotFound where the session has ended, OperationStopped where tokens are missing.
        """
        try:
            request = runtime_pb2.GenerateRequest.FromString(resumption)
        except DecodeError as error:
            raise InvalidRequest("this is no generation that can be gone on with") from error
        request.ClearField("resume_token_ids")
        session = AsyncSession(self._calls, request.session_id)
        session._history.length = answer_start
        return AsyncGeneration(self._calls, session._history, request, session=session, timeout_seconds=timeout_seconds)

    def _opening(self, ephemeral: bool, timeout_seconds: float | None, options: Mapping[str, Any]) -> AsyncOpening:
        return AsyncOpening(
            self._calls,
            check_history=self._check_history,
            ephemeral=ephemeral,
            timeout_seconds=timeout_seconds,
            **options,
        )

    def _generation(
        self,
        turn: AsyncTurn,
        max_tokens: int,
        timeout_seconds: float | None,
        start_tags: Iterable[bytes],
        sampling: Mapping[str, Any],
    ) -> AsyncGeneration:
        turn.request.start_tags.extend(tag_list(start_tags))
        request = generate_request("", max_tokens=max_tokens, **sampling)
        return AsyncGeneration(
            self._calls, turn.history, request, session=None, timeout_seconds=timeout_seconds, turn=turn
        )


def _parted(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Those of a session, and those of an answer."""
    of_answer = SamplingOptions.__annotations__.keys()
    of_session = {name: value for name, value in options.items() if name not in of_answer}
    return of_session, {name: value for name, value in options.items() if name in of_answer}
