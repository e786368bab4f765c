"""Requests, checked before they are sent."""

import operator
from collections.abc import Iterable, Mapping
from typing import SupportsIndex, TypeVar

from google.protobuf.message import Message

from kakeya.errors import InvalidField, TokenOutOfVocabulary
from kakeya.grammar import Grammar, Reasoning
from kakeya.results import OverflowPolicy, PlaceKind
from kakeya_stubs.v1 import runtime_pb2

TokenIds = Iterable[SupportsIndex]
"""Token ids: a list of ints, a numpy array, a tensor of one dimension, ..."""

_MAX_TOKEN_ID = 2**32 - 1

M = TypeVar("M", bound=Message)


def token_list(token_ids: TokenIds, field: str = "token_ids") -> list[int]:
    """Token ids as plain ints.

    Raises:
        InvalidField: something in it is not an integer.
        TokenOutOfVocabulary: an id that no vocabulary has, as it is below 0 or above 2**32 - 1.
    """
    values = token_ids.tolist() if hasattr(token_ids, "tolist") else token_ids  # one call for a whole array
    try:
        ids = [operator.index(value) for value in values]
    except TypeError as error:
        raise InvalidField(f"{field}: not a sequence of integers: {error}", metadata={"field": field}) from error
    if ids and not 0 <= min(ids) <= max(ids) <= _MAX_TOKEN_ID:
        wrong = next(id_ for id_ in ids if not 0 <= id_ <= _MAX_TOKEN_ID)
        raise TokenOutOfVocabulary(f"{field}: {wrong} is not between 0 and 2**32 - 1", metadata={"field": field})
    return ids


def fill(request: M, **fields: object) -> M:
    """Sets the fields that are not None.

    Raises:
        InvalidField: a value does not fit its field; `metadata["field"]` names it.
    """
    for name, value in fields.items():
        if value is None:
            continue
        try:
            setattr(request, name, value)
        except (TypeError, ValueError) as error:
            raise InvalidField(f"{name}: {error}", metadata={"field": name}) from error
    return request


def branch_off(request: runtime_pb2.CreateSessionRequest, source_id: str | None, boundary: int | None) -> None:
    """Lets the session begin with another's history, if there is another. Raises InvalidField."""
    if source_id is not None:
        point = fill(runtime_pb2.ForkPoint(), session_id=source_id, boundary=boundary)
        request.fork_from.CopyFrom(point)
    elif boundary is not None:
        raise InvalidField("boundary: of no session; there is no fork_from", metadata={"field": "boundary"})


def has_branched_off(request: runtime_pb2.CreateSessionRequest, response: runtime_pb2.CreateSessionResponse) -> bool:
    """Whether the session begins as asked for: a runtime that does not know `fork_from` opens an empty one."""
    if not request.HasField("fork_from"):
        return True
    if request.fork_from.HasField("boundary"):
        return response.history_length == request.fork_from.boundary
    return response.history_length > 0


def generate_request(
    session_id: str,
    *,
    logit_bias: Mapping[int, float] | None = None,
    stop_token_sequences: Iterable[TokenIds] | None = None,
    grammar: Grammar | None = None,
    reasoning: Reasoning | None = None,
    **fields: object,
) -> runtime_pb2.GenerateRequest:
    """A Generate; `fields` as in `fill`. Raises InvalidField, TokenOutOfVocabulary."""
    request = fill(runtime_pb2.GenerateRequest(session_id=session_id), **fields)
    if logit_bias is not None:
        if not isinstance(logit_bias, Mapping):
            raise InvalidField("logit_bias: maps token ids to numbers", metadata={"field": "logit_bias"})
        token_ids = token_list(logit_bias, "logit_bias")
        try:
            request.logit_bias.update(zip(token_ids, logit_bias.values(), strict=True))
        except (TypeError, ValueError) as error:
            raise InvalidField(f"logit_bias: {error}", metadata={"field": "logit_bias"}) from error
    for name, kind, given in (("grammar", Grammar, grammar), ("reasoning", Reasoning, reasoning)):
        if given is not None:
            _copy(request, name, kind, given)
    for sequence in _sequences(stop_token_sequences):
        request.stop_token_sequences.add(token_ids=token_list(sequence, "stop_token_sequences"))
    return request


def _copy(request: runtime_pb2.GenerateRequest, name: str, kind: type, given: Grammar | Reasoning) -> None:
    """Raises InvalidField."""
    if not isinstance(given, kind):
        raise InvalidField(f"{name}: make it by kakeya.{kind.__name__}", metadata={"field": name})
    try:
        getattr(request, name).CopyFrom(given.wire)
    except (TypeError, ValueError) as error:
        raise InvalidField(f"{name}: {error}", metadata={"field": name}) from error


def _sequences(of_tokens: Iterable[TokenIds] | None) -> Iterable[TokenIds]:
    """None is none. Raises InvalidField: nothing to iterate over."""
    try:
        return () if of_tokens is None else iter(of_tokens)
    except TypeError as error:
        raise InvalidField(f"stop_token_sequences: {error}", metadata={"field": "stop_token_sequences"}) from error


def overflow_policy(name: str | None) -> "runtime_pb2.OverflowPolicy.ValueType | None":
    """A policy on the wire. Raises InvalidField: there is no such policy."""
    if name is None:
        return None
    try:
        return OverflowPolicy(name).wire
    except ValueError as error:
        raise InvalidField(f"on_overflow: {error}", metadata={"field": "on_overflow"}) from error


def tag_request(
    session_id: str, kind: str, history_length: int, tags: Iterable[bytes], op_id: str | None
) -> runtime_pb2.TagTurnRequest:
    """A TagTurn. Raises InvalidField."""
    request = fill(runtime_pb2.TagTurnRequest(session_id=session_id, tags=tag_list(tags)), op_id=op_id)
    try:
        request.place.kind = PlaceKind(kind).wire
    except ValueError as error:
        raise InvalidField(f"kind: {error}", metadata={"field": "kind"}) from error
    fill(request.place, history_length=history_length)
    return request


def tag_list(tags: Iterable[bytes]) -> list[bytes]:
    """Tags as a list. Raises InvalidField: it is no sequence of bytes, as one tag alone is none."""
    given = list(tags)
    if not all(isinstance(tag, bytes) for tag in given):
        raise InvalidField("tags: not a sequence of bytes, 32 each", metadata={"field": "tags"})
    return given


def check_names(method: str, given: Mapping[str, object], known: type) -> None:
    """Raises TypeError as a call does that has an option too many."""
    if unknown := given.keys() - known.__annotations__.keys():
        raise TypeError(f"{method}() has no {', '.join(sorted(unknown))}")
