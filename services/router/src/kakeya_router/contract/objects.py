"""StoreObject, FetchObject and DeleteObject: what is asked for, checked once and frozen."""

import re
from dataclasses import dataclass
from typing import Self

from kakeya_router.contract.validation import invalid
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
        object_id = checked_id(message.id)
        if len(message.data) > MAX_OBJECT_BYTES:
            raise invalid("data", f"{len(message.data)} bytes; at most {MAX_OBJECT_BYTES}")
        if message.ttl_seconds > _MAX_TTL_SECONDS:
            raise invalid("ttl_seconds", f"must be at most {_MAX_TTL_SECONDS}")
        return cls(object_id, message.data, message.ttl_seconds or _DAY_SECONDS)


def checked_id(object_id: str) -> str:
    """Raises InvalidField."""
    if not _ID.fullmatch(object_id):
        raise invalid("id", f"must match {_ID.pattern}")
    return object_id
