"""Objects that tenants have kept; nobody looks inside, and nothing of them is logged but their size."""

from dataclasses import dataclass
from typing import assert_never

from kakeya_router.access import callers
from kakeya_router.contract import objects, refusals
from kakeya_router.contract.objects import StoreRequest, UpdateRequest
from kakeya_router.store.object_store import ObjectStore
from kakeya_router.store.outcomes import UpdateObject
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

    async def fetch(self, message: api.FetchObjectRequest) -> api.FetchObjectResponse:
        """Raises InvalidField, ObjectNotFound, StoreUnavailable."""
        found = await self._store.fetch(callers.current().tenant, objects.checked_id(message.id))
        if found is None:
            raise refusals.no_object()
        data, version = found
        tell(object_bytes=len(data))
        return api.FetchObjectResponse(data=data, version=version)

    async def update(self, message: api.UpdateObjectRequest) -> int:
        """Its version then. Raises InvalidField, ObjectNotFound, ObjectChanged, QuotaExceeded, StoreUnavailable."""
        asked, caller = UpdateRequest.of(message), callers.current()
        max_bytes = caller.quota.max_reserved_bytes
        outcome, version = await self._store.update(
            caller.tenant,
            asked.object_id,
            asked.data,
            version=asked.version,
            appends=asked.appends,
            ttl_seconds=asked.ttl_seconds,
            max_object_bytes=objects.MAX_OBJECT_BYTES,
            max_bytes=max_bytes,
        )
        tell(object_bytes=len(asked.data))
        match outcome:
            case UpdateObject.UPDATED:
                return version
            case UpdateObject.MISSING:
                raise refusals.no_object()
            case UpdateObject.CHANGED:
                raise refusals.object_changed()
            case UpdateObject.LARGE:
                raise objects.too_large()
            case UpdateObject.QUOTA:
                raise refusals.objects_exceeded(max_bytes, caller.tenant)
            case never:
                assert_never(never)

    async def delete(self, message: api.DeleteObjectRequest) -> None:
        """Raises InvalidField, ObjectNotFound, StoreUnavailable."""
        if not await self._store.delete(callers.current().tenant, objects.checked_id(message.id)):
            raise refusals.no_object()
