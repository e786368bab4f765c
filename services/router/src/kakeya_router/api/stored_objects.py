"""Objects that tenants have kept; nobody looks inside, and nothing of them is logged but their size."""

from dataclasses import dataclass

from kakeya_router.access import callers
from kakeya_router.contract import objects, refusals
from kakeya_router.contract.objects import StoreRequest
from kakeya_router.store.object_store import ObjectStore
from kakeya_shared.rpc.served_calls import tell
from kakeya_stubs.v1 import runtime_pb2 as api


@dataclass(eq=False)
class StoredObjects:
    """Of the caller's tenant; called by `RuntimeService`."""

    _store: ObjectStore

    async def store(self, message: api.StoreObjectRequest) -> None:
        """Raises InvalidField, QuotaExceeded, StoreUnavailable."""
        asked, caller = StoreRequest.of(message), callers.current()
        max_bytes = caller.quota.max_reserved_bytes
        is_stored = await self._store.store(
            caller.tenant, asked.object_id, asked.data, ttl_seconds=asked.ttl_seconds, max_bytes=max_bytes
        )
        tell(object_bytes=len(asked.data))
        if not is_stored:
            raise refusals.objects_exceeded(max_bytes, caller.tenant)

    async def fetch(self, message: api.FetchObjectRequest) -> bytes:
        """Raises InvalidField, ObjectNotFound, StoreUnavailable."""
        data = await self._store.fetch(callers.current().tenant, objects.checked_id(message.id))
        if data is None:
            raise refusals.no_object()
        tell(object_bytes=len(data))
        return data

    async def delete(self, message: api.DeleteObjectRequest) -> None:
        """Raises InvalidField, ObjectNotFound, StoreUnavailable."""
        if not await self._store.delete(callers.current().tenant, objects.checked_id(message.id)):
            raise refusals.no_object()
