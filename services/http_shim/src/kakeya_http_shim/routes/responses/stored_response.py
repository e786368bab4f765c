"""One response as the runtime keeps it: changed by the server that answers it, and by no other."""

import asyncio
import re
from dataclasses import dataclass, field
from typing import Final

import structlog

from kakeya import AsyncClient, KakeyaError, ObjectChanged, ObjectNotFound
from kakeya_http_shim.problems import ApiError, from_kakeya
from kakeya_http_shim.responses_api.kept.kept_response import KeptResponse
from kakeya_http_shim.responses_api.kept.packing import Unreadable

_log = structlog.get_logger()

NOT_FOUND: Final = "response_not_found"
_ID: Final = re.compile(r"resp_[0-9a-f]{32}")
_MAX_ATTEMPTS: Final = 8
"""Each that fails is one that another server has written in between, which few do."""
_INLINE_BYTES: Final = 64 << 10
"""They are unpacked and checked within a millisecond or two."""
IN_PROGRESS: Final = "in_progress"


async def fetched(client: AsyncClient, response_id: str) -> tuple[KeptResponse, int]:
    """What is kept under an id, and its version.

    Raises:
        ApiError: 404: there is nothing; as `from_kakeya` has it where the runtime fails.
    """
    if not _ID.fullmatch(response_id):
        raise not_found(response_id)
    try:
        found = await client.fetch_object(response_id)
        return await _unpacked(found.data), found.version
    except (ObjectNotFound, Unreadable) as error:
        raise not_found(response_id) from error
    except KakeyaError as error:
        raise from_kakeya(error) from error


async def _unpacked(data: bytes) -> KeptResponse:
    """What little there is to unpack, since most of it is remembered, is unpacked here. Raises Unreadable."""
    try:
        return KeptResponse.unpacked(data, _INLINE_BYTES)
    except Unreadable:
        return await asyncio.to_thread(KeptResponse.unpacked, data)


async def deleted(client: AsyncClient, response_id: str) -> None:
    """Forgets what is kept. Raises ApiError as `fetched`."""
    if not _ID.fullmatch(response_id):
        raise not_found(response_id)
    try:
        await client.delete_object(response_id)
    except ObjectNotFound as error:
        raise not_found(response_id) from error
    except KakeyaError as error:
        raise from_kakeya(error) from error


def not_found(response_id: str) -> ApiError:
    shown = response_id[:64]
    message = f"there is no response {shown!r}: never stored, deleted or expired"
    return ApiError(404, message, param="response_id", code=NOT_FOUND)


@dataclass(eq=False)
class StoredResponse:
    """The object of one.

    Attributes:
        by: names who answers it; one that has another's name in it is not written any more.
        ttl_seconds: for which it is kept from each change on.
        version: of the object; 0: nothing is there yet.
        is_as_written: what was written last is what is kept; not where it was deleted, or is another's.
    """

    client: AsyncClient
    response_id: str
    by: str
    ttl_seconds: int
    version: int = 0
    is_as_written: bool = field(default=False, init=False)

    async def write(self, kept: KeptResponse) -> bool:
        """Whether it is kept so, or is another's by now, or was deleted. Where that fails nothing of it is left."""
        self.is_as_written = False
        try:
            data = await asyncio.to_thread(kept.packed)
            if self.version:
                await self._update(data)
            else:
                await self.client.store_object(self.response_id, data, ttl_seconds=self.ttl_seconds)
                self.version, self.is_as_written = 1, True
        except (KakeyaError, ApiError) as error:
            _log.warning("a response was not stored", error=f"{type(error).__name__}: {error}")
            if self.version:
                await self._forget()
            return False
        return True

    async def write_unchanged(self, kept: KeptResponse) -> bool:
        """Whether nobody has changed it since, and it is kept so. Raises ApiError where the runtime fails."""
        try:
            data = await asyncio.to_thread(kept.packed)
            self.version = await self.client.update_object(
                self.response_id, data, version=self.version, ttl_seconds=self.ttl_seconds
            )
        except (ObjectChanged, ObjectNotFound):
            return False
        except KakeyaError as error:
            raise from_kakeya(error) from error
        return True

    async def check(self) -> None:
        """Raises ObjectChanged: another one answers it by now, or has. One that was deleted is nobody else's."""
        try:
            kept, _ = await fetched(self.client, self.response_id)
        except ApiError:
            return
        if kept.run is None or kept.run.by != self.by:
            raise ObjectChanged("another server answers it")

    async def _update(self, data: bytes) -> None:
        for _ in range(_MAX_ATTEMPTS):
            try:
                self.version = await self.client.update_object(
                    self.response_id, data, version=self.version, ttl_seconds=self.ttl_seconds
                )
                self.is_as_written = True
                return
            except ObjectNotFound:
                return
            except ObjectChanged:
                kept, self.version = await fetched(self.client, self.response_id)
                if kept.run is None or kept.run.by != self.by:
                    return
        raise ApiError(503, "others change it all the time")

    async def _forget(self) -> None:
        """Its beginning says that it goes on, which it does not; its time to live ends it where this fails."""
        try:
            await self.client.delete_object(self.response_id)
        except KakeyaError as error:
            _log.info("a response's beginning stays", error=f"{type(error).__name__}: {error}")
