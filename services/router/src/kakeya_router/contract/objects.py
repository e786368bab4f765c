"""StoreObject, FetchObject, UpdateObject and DeleteObject: what is asked for, checked once and frozen."""

import re
from dataclasses import dataclass
from typing import Self

from kakeya_router.contract.validation import invalid
from kakeya_shared.errors.tree import InvalidField
from kakeya_stubs.v1 import runtime_pb2 as api

MAX_OBJECT_BYTES = 1 << 20
_DAY_SECONDS = 86_400
_MAX_TTL_SECONDS = 30 * _DAY_SECONDS
_ID = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@dataclass(frozen=True, slots=True)
class StoreRequest:
    """An object that is to be kept."""

    object_id: str
    data: bytes
    ttl_seconds: int

    @classmethod
    def of(cls, message: api.StoreObjectRequest) -> Self:
        """Raises InvalidField."""
        return cls(checked_id(message.id), _checked_data(message.data), _ttl_seconds(message.ttl_seconds))


@dataclass(frozen=True, slots=True)
class UpdateRequest:
    """An object that is to be changed.

    Attributes:
        version: that it has to have.
        appends: the data come behind it, not in place of it.
    """

    object_id: str
    version: int
    data: bytes
    appends: bool
    ttl_seconds: int

    @classmethod
    def of(cls, message: api.UpdateObjectRequest) -> Self:
        """Raises InvalidField."""
        object_id, data = checked_id(message.id), _checked_data(message.data)
        if message.version < 1:
            raise invalid("version", "must be that of the object as it was fetched")
        return cls(object_id, message.version, data, message.appends, _ttl_seconds(message.ttl_seconds))


def checked_id(object_id: str) -> str:
    """Raises InvalidField."""
    if not _ID.fullmatch(object_id):
        raise invalid("id", f"must match {_ID.pattern}")
    return object_id


def too_large() -> InvalidField:
    """With what was to be appended."""
    return invalid("data", f"the object would have more than {MAX_OBJECT_BYTES} bytes")


def _checked_data(data: bytes) -> bytes:
    if len(data) > MAX_OBJECT_BYTES:
        raise invalid("data", f"{len(data)} bytes; at most {MAX_OBJECT_BYTES}")
    return data


def _ttl_seconds(given: int) -> int:
    if given > _MAX_TTL_SECONDS:
        raise invalid("ttl_seconds", f"must be at most {_MAX_TTL_SECONDS}")
    return given or _DAY_SECONDS
