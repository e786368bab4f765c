"""Requests, checked before they are sent."""

import operator
from collections.abc import Iterable
from typing import SupportsIndex, TypeVar

from google.protobuf.message import Message

from kakeya.errors import InvalidField, TokenOutOfVocabulary

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
