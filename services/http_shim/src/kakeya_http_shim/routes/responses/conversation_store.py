"""Conversations that the runtime keeps: fetched, and changed by several at once without loss."""

import asyncio
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kakeya import AsyncClient, InvalidField, KakeyaError, ObjectChanged, ObjectNotFound, RpcFailed
from kakeya_http_shim.problems import ApiError, from_kakeya, unavailable
from kakeya_http_shim.responses_api.kept.kept_conversation import KeptConversation, appended
from kakeya_http_shim.responses_api.kept.packing import Unreadable

_MAX_BYTES: Final = 1 << 20
"""Of an object of the runtime's."""
_MAX_ATTEMPTS: Final = 64
"""Each attempt that fails is one that another request succeeded with."""
_ID: Final = re.compile(r"conv_[0-9a-f]{32}")
_PARAM: Final = "conversation_id"

_Written = tuple[bytes, bool] | None
"""What goes to the runtime, and whether behind what is there; None: nothing has to."""


@dataclass(frozen=True)
class Conversations:
    """Those of a key's tenant. All methods raise ApiError: 404 where there is none, and what the runtime fails with.

    Attributes:
        client: of the key.
        ttl_seconds: how long one is kept, from its last change on.
        param: the field that names one.
    """

    client: AsyncClient
    ttl_seconds: int
    param: str = _PARAM

    async def begin(self, conversation: KeptConversation) -> str:
        """Keeps a new one: its id."""
        conversation_id = f"conv_{secrets.token_hex(16)}"
        data = await asyncio.to_thread(conversation.packed)
        _check_size(data)
        try:
            await self.client.store_object(conversation_id, data, ttl_seconds=self.ttl_seconds)
        except KakeyaError as error:
            raise self._failure(error, conversation_id) from error
        return conversation_id

    async def fetch(self, conversation_id: str) -> KeptConversation:
        """As it is now."""
        kept, _ = await self._fetch(conversation_id)
        return kept

    async def add(self, conversation_id: str, items: Sequence[dict[str, Any]], *, field: str) -> None:
        """Appends items. Two that do so at once come one behind the other.

        Args:
            field: that has brought them, for ApiError: the conversation would be too large, or has such an id.
        """
        record = await asyncio.to_thread(appended, items)
        _check_size(record)
        ids = [item["id"] for item in items]

        def write(kept: KeptConversation, is_again: bool) -> _Written:
            there = set(kept.ids())
            if is_again and there.issuperset(ids):
                return None  # the answer to an attempt was lost
            check_new(there, items, field)
            return record, True

        await self._change(conversation_id, write)

    async def note(self, conversation_id: str, metadata: dict[str, str]) -> KeptConversation:
        """With these metadata from now on."""

        def write(kept: KeptConversation) -> KeptConversation:
            return KeptConversation(kept.created_at, metadata, kept.items)

        return await self._rewrite(conversation_id, write)

    async def drop(self, conversation_id: str, item_id: str) -> KeptConversation:
        """Without an item from now on. Raises ApiError: there is none of that id."""

        def write(kept: KeptConversation) -> KeptConversation:
            item_of(kept, item_id)
            others = [item for item in kept.items if item["id"] != item_id]
            return KeptConversation(kept.created_at, kept.metadata, others)

        return await self._rewrite(conversation_id, write)

    async def forget(self, conversation_id: str) -> None:
        """With all its items."""
        try:
            await self.client.delete_object(self._checked(conversation_id))
        except KakeyaError as error:
            raise self._failure(error, conversation_id) from error

    async def _rewrite(
        self, conversation_id: str, change: Callable[[KeptConversation], KeptConversation]
    ) -> KeptConversation:
        changed: list[KeptConversation] = []

        def write(kept: KeptConversation, _: bool) -> _Written:
            changed.append(change(kept))
            return changed[-1].packed(), False

        await self._change(conversation_id, write)
        return changed[-1]

    async def _change(self, conversation_id: str, write: Callable[[KeptConversation, bool], _Written]) -> None:
        """Until nobody has changed it between being fetched and being written."""
        for attempt in range(_MAX_ATTEMPTS):
            kept, version = await self._fetch(conversation_id)
            written = await asyncio.to_thread(write, kept, attempt > 0)
            if written is None:
                return
            data, appends = written
            try:
                await self.client.update_object(
                    conversation_id, data, version=version, appends=appends, ttl_seconds=self.ttl_seconds
                )
                return
            except ObjectChanged:
                continue
            except KakeyaError as error:
                raise self._failure(error, conversation_id) from error
        raise unavailable("too many requests change the conversation at once", "conversation_changed")

    async def _fetch(self, conversation_id: str) -> tuple[KeptConversation, int]:
        try:
            found = await self.client.fetch_object(self._checked(conversation_id))
            return await asyncio.to_thread(KeptConversation.unpacked, found.data), found.version
        except Unreadable as error:
            raise self._not_found(conversation_id) from error
        except KakeyaError as error:
            raise self._failure(error, conversation_id) from error

    def _checked(self, conversation_id: str) -> str:
        if not _ID.fullmatch(conversation_id):
            raise self._not_found(conversation_id)
        return conversation_id

    def _failure(self, error: KakeyaError, conversation_id: str) -> ApiError:
        match error:
            case ObjectNotFound():
                return self._not_found(conversation_id)
            case InvalidField():
                return _too_large()
            case RpcFailed():
                return unavailable("the runtime is of an older version, and keeps no conversations", "not_stored")
        return from_kakeya(error)

    def _not_found(self, conversation_id: str) -> ApiError:
        message = f"there is no conversation {conversation_id[:64]!r}: never made, deleted or expired"
        return ApiError(404, message, param=self.param, code="conversation_not_found")


def item_of(kept: KeptConversation, item_id: str) -> dict[str, Any]:
    """Raises ApiError: there is none."""
    for item in kept.items:
        if item["id"] == item_id:
            return item
    message = f"there is no item {item_id[:64]!r} in this conversation"
    raise ApiError(404, message, param="item_id", code="item_not_found")


def check_new(there: set[str], items: Sequence[dict[str, Any]], field: str) -> None:
    """Raises ApiError: an item has the id of one that is there, or that comes before it."""
    seen = set(there)
    for place, item in enumerate(items):
        if item["id"] in seen:
            where = f"{field}[{place}].id"
            raise ApiError(400, f"{where}: an item of the conversation has it", param=where, code="invalid_value")
        seen.add(item["id"])


def _check_size(data: bytes) -> None:
    if len(data) > _MAX_BYTES:
        raise _too_large()


def _too_large() -> ApiError:
    message = "the conversation would have more than 1 MiB, packed; begin another one, or delete items of this one"
    return ApiError(400, message, param="conversation", code="conversation_full")
