"""TagTurn and FindSession: what is asked for, checked once and frozen, and what is answered."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from kakeya_router.contract.validation import MAX_COUNT, MAX_REQUEST_ID_BYTES, check_text, invalid
from kakeya_router.store.session_record import SessionId, SessionRecord
from kakeya_router.store.sessions.stored_tags import HistoryPlace, PlaceKind
from kakeya_shared.contract import labels
from kakeya_stubs.v1 import runtime_pb2 as api

_TAG_BYTES = 32
# Of one place, and of one search: a search names the places of a conversation, deepest first.
_MAX_PLACE_TAGS = 4
_MAX_FIND_TAGS = 64

_KINDS = {
    api.PLACE_KIND_HEAD: PlaceKind.HEAD,
    api.PLACE_KIND_ANSWER_START: PlaceKind.START,
    api.PLACE_KIND_ANSWER_END: PlaceKind.END,
}
_NUMBERS = {kind: number for number, kind in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class TagRequest:
    """Tags, in hexadecimal, for a place of a session.

    Attributes:
        op_id: of the Generate whose place it is; empty: of none.
    """

    session_id: SessionId
    place: HistoryPlace
    tags: tuple[str, ...]
    op_id: str

    @classmethod
    def of(cls, message: api.TagTurnRequest) -> Self:
        """Raises InvalidField."""
        kind, length = _KINDS.get(message.place.kind), message.place.history_length
        if kind is None:
            raise invalid("place", f"there is no kind {message.place.kind}")
        if not 1 <= length <= MAX_COUNT:
            raise invalid("place", "history_length must be at least 1, and a length that a history can have")
        check_text("op_id", message.op_id, MAX_REQUEST_ID_BYTES)
        if not message.op_id and kind is not PlaceKind.HEAD:
            raise invalid("op_id", "needed for a place of an answer")
        tags = _checked(message.tags, _MAX_PLACE_TAGS)
        return cls(SessionId(message.session_id), HistoryPlace(kind, length), tags, message.op_id)


@dataclass(frozen=True, slots=True)
class FindRequest:
    """Tags, in hexadecimal, deepest place first; no model: the default.

    Attributes:
        session_id: the one session to look at; empty: all of the caller's.
    """

    tags: tuple[str, ...]
    model: str
    session_id: str = ""

    @classmethod
    def of(cls, message: api.FindSessionRequest) -> Self:
        """Raises InvalidField."""
        check_text("model", message.model, labels.MAX_MODEL_BYTES)
        return cls(_checked(message.tags, _MAX_FIND_TAGS), message.model, message.session_id)

    @classmethod
    def of_turn(cls, message: api.TurnSearch) -> Self:
        """Raises InvalidField."""
        return cls.of(api.FindSessionRequest(tags=message.tags, model=message.model))


@dataclass(frozen=True, slots=True)
class Found:
    """A session at a place.

    Attributes:
        record: the session, as it was then.
        tag_index: of the tag that named it, in the request.
        at_us: when it was tagged, in microseconds.
        is_idle_end: the history ends there, and no operation runs.
        is_last: no place beyond has tags.
    """

    record: SessionRecord
    place: HistoryPlace
    tag_index: int
    at_us: int
    is_idle_end: bool
    is_last: bool

    @property
    def session_id(self) -> SessionId:
        return self.record.session_id

    @property
    def history_length(self) -> int:
        return self.record.journal_length

    def message(self) -> api.FindSessionResponse:
        return api.FindSessionResponse(
            session_id=self.session_id,
            place=api.HistoryPlace(kind=_NUMBERS[self.place.kind], history_length=self.place.length),
            tag_index=self.tag_index,
            is_idle_end=self.is_idle_end,
            is_last=self.is_last,
            history_length=self.history_length,
        )


def start_tags(tags: Sequence[bytes]) -> tuple[str, ...]:
    """Those that a Turn gives to the place where its answer begins, in hexadecimal. Raises InvalidField."""
    return _checked(tags, _MAX_PLACE_TAGS, "start_tags") if tags else ()


def _checked(tags: Sequence[bytes], most: int, field: str = "tags") -> tuple[str, ...]:
    if not 1 <= len(tags) <= most:
        raise invalid(field, f"{len(tags)} of them; at least 1 and at most {most}")
    if any(len(tag) != _TAG_BYTES for tag in tags):
        raise invalid(field, f"each must have {_TAG_BYTES} bytes")
    return tuple(tag.hex() for tag in tags)
