"""What the runtime says of sessions as a whole."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from kakeya.results.turns import Sight, ranges
from kakeya_stubs.v1 import runtime_pb2


class OverflowPolicy(StrEnum):
    """What happens when the history outgrows sink and window."""

    EVICT = "evict"
    """The oldest tokens of the window are forgotten."""
    REFUSE = "refuse"
    """Nothing is: an append that does not fit raises HistoryFull, a generation stops as TRUNCATED."""

    @property
    def wire(self) -> runtime_pb2.OverflowPolicy.ValueType:
        return runtime_pb2.OverflowPolicy.Value(f"OVERFLOW_POLICY_{self.name}")


class SessionState(StrEnum):
    """Where a session stands."""

    UNSPECIFIED = "unspecified"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    FAILED = "failed"
    LOST = "lost"
    PARKED = "parked"

    @classmethod
    def of_name(cls, name: str) -> "SessionState":
        """Of a record; one that this version does not know is UNSPECIFIED."""
        return {state.value: state for state in cls}.get(name, cls.UNSPECIFIED)

    @classmethod
    def from_wire(cls, value: int) -> "SessionState":
        """A state that this version does not know is UNSPECIFIED."""
        if value not in runtime_pb2.SessionState.values():
            return cls.UNSPECIFIED
        name = runtime_pb2.SessionState.Name(runtime_pb2.SessionState.ValueType(value))
        return cls[name.removeprefix("SESSION_STATE_")]


@dataclass(frozen=True, slots=True)
class SessionInfo(Sight):
    """A session as the router has it on record.

    Attributes:
        history_length: tokens of the session so far.
        kv_live_bytes: bytes of KV that the verifier really holds for the session now.
        num_inv1_violations: times the lane differed from what the history demands.
        num_inv2_violations: times the committed position fell without a rewind.
        idle_seconds: since its last operation.
        state: where it stands.
        reserved_bytes: its whole lane, slack included.
        retained: what is kept of the history, as indices into it, ascending.
        exact: whether its bits depend on its tokens, sink, window and the fingerprint alone; not any more once it has
            gone on under another fingerprint.
        fingerprint: digest of all that the bits depend on, of the worker that it is on, or was on last.
        model: what serves it.
        worker: id of the worker that holds its lane; empty while it is parked.
        epoch: rises with each new lease on the session.
        boundaries: history lengths at which its last turns ended, at most four, ascending: where others can branch off.
        inexact_resume: whether it may go on under another fingerprint.
        num_drafted_tokens, num_accepted_tokens: drafts of its proposer that were checked, and those that were right,
            over all its answers that came to their end.
    """

    history_length: int
    kv_live_bytes: int
    num_inv1_violations: int
    num_inv2_violations: int
    idle_seconds: float
    state: SessionState
    reserved_bytes: int
    retained: tuple[range, ...]
    exact: bool
    fingerprint: str
    model: str
    worker: str
    epoch: int
    boundaries: tuple[int, ...] = ()
    inexact_resume: bool = False
    num_drafted_tokens: int = 0
    num_accepted_tokens: int = 0

    @classmethod
    def from_wire(cls, response: runtime_pb2.GetSessionInfoResponse) -> Self:
        return cls(
            history_length=response.history_length,
            kv_live_bytes=response.kv_live_bytes,
            num_inv1_violations=response.cache_invariant_inv1_violations,
            num_inv2_violations=response.cache_invariant_inv2_violations,
            idle_seconds=response.idle_seconds,
            state=SessionState.from_wire(response.state),
            reserved_bytes=response.reserved_bytes,
            retained=ranges(response.retained),
            exact=response.exact,
            fingerprint=response.fingerprint,
            model=response.model,
            worker=response.worker,
            epoch=response.epoch,
            boundaries=tuple(response.boundaries),
            inexact_resume=response.inexact_resume,
            num_drafted_tokens=response.drafted_token_count,
            num_accepted_tokens=response.accepted_token_count,
        )


@dataclass(frozen=True, slots=True)
class ListedSession:
    """What a list says of a session; its `info` says more.

    Attributes:
        id: as a client's `session` takes it, to go on with it.
        label: that it was created with.
        model: what serves it.
        state: where it stands.
        history_length: tokens of the session so far.
        kv_live_bytes: bytes of KV that the verifier really holds for the session now.
        reserved_bytes: its whole lane, slack included; 0 while it is parked.
        idle_seconds: since its last operation; 0 while one runs.
    """

    id: str
    label: str
    model: str
    state: SessionState
    history_length: int
    kv_live_bytes: int
    reserved_bytes: int
    idle_seconds: float

    @classmethod
    def from_wire(cls, session: runtime_pb2.Session) -> Self:
        return cls(
            id=session.session_id,
            label=session.client_label,
            model=session.model,
            state=SessionState.from_wire(session.state),
            history_length=session.history_length,
            kv_live_bytes=session.kv_live_bytes,
            reserved_bytes=session.reserved_bytes,
            idle_seconds=session.idle_seconds,
        )


@dataclass(frozen=True, slots=True)
class ParkResult:
    """After parking.

    Attributes:
        history_length: tokens of the session, all of which are kept.
        freed_bytes: of the lane that another session may have now; 0 where it had none any more.
    """

    history_length: int
    freed_bytes: int

    @classmethod
    def from_wire(cls, response: runtime_pb2.ParkSessionResponse) -> Self:
        return cls(history_length=response.history_length, freed_bytes=response.freed_bytes)


class PlaceKind(StrEnum):
    """What a place of a history is, that can have tags."""

    HEAD = "head"
    """The end of what conversations begin with alike, such as system message and tools."""
    ANSWER_START = "answer_start"
    """Where an answer begins."""
    ANSWER_END = "answer_end"
    """Where an answer has ended."""
    UNSPECIFIED = "unspecified"

    @property
    def wire(self) -> runtime_pb2.PlaceKind.ValueType:
        return runtime_pb2.PlaceKind.Value(f"PLACE_KIND_{self.name}")

    @classmethod
    def from_wire(cls, value: int) -> "PlaceKind":
        """A kind that this version does not know is UNSPECIFIED."""
        if value not in runtime_pb2.PlaceKind.values():
            return cls.UNSPECIFIED
        name = runtime_pb2.PlaceKind.Name(runtime_pb2.PlaceKind.ValueType(value))
        return cls[name.removeprefix("PLACE_KIND_")]


@dataclass(frozen=True, slots=True)
class FoundSession:
    """A session that has a tag, and where.

    Attributes:
        id: as a client's `session` takes it, to go on with it.
        kind: of the place.
        place: tokens before it.
        tag_index: which of the tags it was.
        is_idle_end: the history ends there, and no operation runs: the session itself can go on. Else a fork of it can.
        is_last: no place beyond it has tags; what comes after it can be rewound.
        history_length: tokens of the session now.
    """

    id: str
    kind: PlaceKind
    place: int
    tag_index: int
    is_idle_end: bool
    is_last: bool
    history_length: int

    @classmethod
    def from_wire(cls, response: runtime_pb2.FindSessionResponse) -> Self:
        return cls(
            id=response.session_id,
            kind=PlaceKind.from_wire(response.place.kind),
            place=response.place.history_length,
            tag_index=response.tag_index,
            is_idle_end=response.is_idle_end,
            is_last=response.is_last,
            history_length=response.history_length,
        )
