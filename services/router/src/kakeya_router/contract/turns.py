"""Turn: what is asked for, all parts of it checked and frozen, and what is told of it on the way."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, Self, assert_never

from kakeya_router.contract import creates, generates
from kakeya_router.contract.appends import Appended
from kakeya_router.contract.creates import CreateRequest, ForkPoint
from kakeya_router.contract.generates import Ended, GenerateRequest, Token, Truncated
from kakeya_router.contract.tags import FindRequest, Found, start_tags
from kakeya_router.contract.validation import MAX_REQUEST_ID_BYTES, RequestLimits, check_text, check_vocabulary, invalid
from kakeya_router.store.session_record import LaneState, Overflow, SessionId, SessionRecord, ranges_text
from kakeya_router.store.sessions.session_changes import Intent
from kakeya_router.store.sessions.session_store import pack
from kakeya_shared.errors.tree import EmptyHistory, HistoryFull, KakeyaError
from kakeya_stubs.v1 import runtime_pb2 as api

Part = Literal["session", "append", "generate"]
"""That an error can be of, as `metadata["part"]` names it; closing fails for nobody."""

# What the Turn says itself, of the whole.
_NOT_OF_A_TURN = frozenset({"session_id", "expected_history_length", "resume_token_ids"})


@contextmanager
def part(name: Part) -> Iterator[None]:
    """Names the part in errors of the tree that do not name one."""
    try:
        yield
    except KakeyaError as error:
        error.metadata.setdefault("part", name)
        raise


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a session a turn goes on.

    Attributes:
        boundary: the history length; None: its end, wherever that is.
        expected_history_length: where its end alone is the place; None: the caller does not say.
        request_id: of the fork, if it takes one.
        digest: of the place, and of how a search has found it; see `SessionRecord.request_digest`.
    """

    session_id: SessionId
    boundary: int | None
    expected_history_length: int | None
    request_id: str
    digest: str

    @classmethod
    def of(cls, message: api.TurnPlace) -> Self:
        """Raises InvalidField."""
        check_text("request_id", message.request_id, MAX_REQUEST_ID_BYTES)
        if message.HasField("boundary") and message.HasField("expected_history_length"):
            raise invalid("expected_history_length", "a boundary says what it does")
        if message.request_id and not message.HasField("boundary"):
            raise invalid("request_id", "without a boundary nothing is forked")
        return cls(
            SessionId(message.session_id),
            message.boundary if message.HasField("boundary") else None,
            message.expected_history_length if message.HasField("expected_history_length") else None,
            message.request_id,
            hashlib.sha256(message.SerializeToString(deterministic=True)).hexdigest(),
        )

    @property
    def length(self) -> int | None:
        """At which alone a turn begins in the session itself; None: wherever that ends."""
        return self.expected_history_length if self.boundary is None else self.boundary

    @property
    def fork(self) -> CreateRequest:
        """For the session that the turn is in where its source is not idle there."""
        fork_from = ForkPoint(self.session_id, self.boundary)
        return CreateRequest(request_id=self.request_id, fork_from=fork_from, digest=self.digest)

    def fork_like(self, source: SessionRecord) -> CreateRequest:
        """Labelled as the source is, to live as long without a call, and to be parked or closed as that one."""
        return replace(
            self.fork,
            label=source.label,
            ttl_seconds=source.ttl_ms // 1000,
            park_after_seconds=source.park_after_ms // 1000 or None,
            disposable=source.disposable,
        )


@dataclass(frozen=True, slots=True)
class Search:
    """How a turn looks for its session.

    Attributes:
        expected: by the index of its tag, how many of the turn's tokens lie before a place.
        request_id: of the fork, if it takes one.
    """

    find: FindRequest
    expected: Mapping[int, int]
    request_id: str

    @classmethod
    def of(cls, message: api.TurnSearch, num_tokens: int) -> Self:
        """Raises InvalidField."""
        check_text("request_id", message.request_id, MAX_REQUEST_ID_BYTES)
        expected = {place.tag_index: place.skipped_token_count for place in message.expected}
        if any(index >= len(message.tags) for index in expected):
            raise invalid("search", "a place is expected that no tag names")
        if any(num_skipped > num_tokens for num_skipped in expected.values()):
            raise invalid("search", "more tokens lie before a place than there are")
        return cls(FindRequest.of_turn(message), expected, message.request_id)

    def place(self, found: Found, op_id: str) -> Place | None:
        """Where the turn goes on; None: not from what was found.

        Args:
            op_id: of the turn, of which an earlier attempt may have come as far as to append; "" where it has none.
        """
        length = found.place.length
        takes_back = found.is_last and not found.is_idle_end and found.history_length > length
        takes_back = takes_back and not (op_id and found.record.operation_id == op_id)
        if found.tag_index not in self.expected or takes_back:
            return None
        place = Place.of(api.TurnPlace(session_id=found.session_id, boundary=length, request_id=self.request_id))
        # The same turn may come again and find another session by the same tag, as the fork that it has made. Where its
        # caller has heard what was found, it comes again with that place.
        return replace(place, digest=f"{place.digest} {self.find.tags[found.tag_index]}")


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A turn that is asked for.

    Attributes:
        where: None: where its search comes to, or nowhere.
        digest: of the tokens, as an append's; empty: there are none.
        start_tags: of the place where its answer begins, in hexadecimal.
    """

    where: Place | CreateRequest | None
    token_ids: tuple[int, ...]
    digest: str
    generate: GenerateRequest
    close: bool
    search: Search | None = None
    start_tags: tuple[str, ...] = ()

    @classmethod
    def of(cls, message: api.TurnRequest, limits: RequestLimits) -> Self:
        """Checks all that needs no session; raises InvalidField, AppendTooLong, EmptyHistory, HistoryFull."""
        with part("session"):
            where = _where(message, limits)
        token_ids = tuple(chain.from_iterable(span.token_ids for span in message.spans))
        is_empty = isinstance(where, CreateRequest) and where.fork_from is None
        with part("append"):
            limits.check_append(len(token_ids))
            if is_empty and not token_ids:
                raise EmptyHistory("a new session has nothing to generate from without tokens")
            limits.check_room(0, len(token_ids))
        with part("generate"):
            given = {field.name for field, _ in message.generate.ListFields()}
            for field in sorted(given & _NOT_OF_A_TURN):
                raise invalid(f"generate.{field}", "is not for a Turn, which says it itself")
            generate = GenerateRequest.of(message.generate, limits)
            limits.within_room(len(token_ids), generate.max_tokens)
        with part("session"):
            search = _search(message, len(token_ids))
            tags = start_tags(message.start_tags)
        return cls(where, token_ids, _digest(token_ids), generate, message.close, search, tags)

    def after(self, found: Found | None) -> Self | None:
        """The turn, once its search has come to this; None: it is none there."""
        if found is None:
            return replace(self, search=None) if self.where is not None else None
        place = self.search.place(found, self.generate.op_id) if self.search is not None else None
        if self.search is None or place is None:
            return None
        token_ids = self.token_ids[self.search.expected[found.tag_index] :]
        return replace(self, where=place, token_ids=token_ids, digest=_digest(token_ids), search=None)

    def check(self, vocab_size: int) -> None:
        """Raises TokenOutOfVocabulary."""
        with part("append"):
            check_vocabulary("spans", self.token_ids, vocab_size)
        with part("generate"):
            self.generate.check_vocabulary(vocab_size)

    def check_lane(self, record: SessionRecord, length: int) -> None:
        """Raises HistoryFull: the session refuses to forget, and has no room for the tokens behind so many."""
        room = record.sink + record.window - length
        if record.on_overflow is Overflow.REFUSE and len(self.token_ids) > room:
            raise HistoryFull(
                f"{len(self.token_ids)} tokens do not fit, and the session refuses to forget",
                metadata={"room": str(room)},
            )

    def intent(self, boundary: int | None) -> Intent:
        """Of the one operation that appends and generates; one that has a boundary begins there alone."""
        return replace(self.generate.intent, num_tokens=len(self.token_ids), digest=self.digest, at_length=boundary)


def _where(message: api.TurnRequest, limits: RequestLimits) -> Place | CreateRequest | None:
    match message.WhichOneof("where"):
        case "session":
            return Place.of(message.session)
        case "create":
            return creates.create(message.create, limits)
        case None if message.HasField("search"):
            return None
        case None:
            raise invalid("where", "there is neither a session nor one to create")


def _search(message: api.TurnRequest, num_tokens: int) -> Search | None:
    if not message.HasField("search"):
        return None
    if message.HasField("session"):
        raise invalid("search", "the session is named")
    return Search.of(message.search, num_tokens)


def _digest(token_ids: tuple[int, ...]) -> str:
    return hashlib.sha256(pack(token_ids)).hexdigest() if token_ids else ""


@dataclass(frozen=True, slots=True)
class Searched:
    """What the search of a turn has come to; the only event where it is nowhere."""

    found: Found | None

    def message(self) -> api.FindSessionResponse:
        return self.found.message() if self.found else api.FindSessionResponse()


@dataclass(frozen=True, slots=True)
class Held:
    """The session is held; before all else that a turn does.

    Attributes:
        record: with the history length that the turn goes on from.
        searched: None: the turn had no search.
    """

    op_id: str
    record: SessionRecord
    searched: Searched | None = None


TurnEvent = Searched | Held | Appended | Truncated | Token | Ended


def appended_before(record: SessionRecord) -> Appended:
    """What an append has left that an earlier attempt of the same turn has made, at where the answer begins."""
    end, sink = record.operation_start, record.sink
    if end == record.history_length:
        return Appended(record.lane)
    kept = [range(end)] if end <= sink + record.window else [range(sink), range(end - record.window, end)]
    return Appended(LaneState(end, record.kv_live_bytes, ranges_text(each for each in kept if each)))


def to_client(event: Appended | Truncated | Token | Ended) -> api.TurnResponse:
    match event:
        case Appended():
            return api.TurnResponse(appended=event.message())
        case Truncated() | Token() | Ended():
            return api.TurnResponse(generated=generates.to_client(event))
        case never:
            assert_never(never)
