"""What a client has a runtime keep for it: objects that the runtime does not look inside."""

from kakeya._async.calls import AsyncCalls
from kakeya._transport._requests import fill
from kakeya.results import FetchedObject
from kakeya_stubs.v1 import runtime_pb2


class AsyncObjects:
    """Base of a client: the objects of its key's tenant."""

    _calls: AsyncCalls

    async def store_object(
        self, object_id: str, data: bytes, *, ttl_seconds: int | None = None, timeout_seconds: float | None = None
    ) -> None:
        """Keeps an object, in place of the one that has its id.

        Args:
            object_id: 1 to 128 letters, digits, `_`, `-` and `.`. Others of the tenant may use the same ids: who wants
                to be the only one makes it of random letters.
            data: at most 1 MiB.
            ttl_seconds: how long it is kept, at most 30 days; None for a day.

        Raises:
            KakeyaError: QuotaExceeded where the tenant's objects would have more bytes than its quota allows.
        """
        request = fill(runtime_pb2.StoreObjectRequest(id=object_id, data=data), ttl_seconds=ttl_seconds)
        await self._calls.repeated("StoreObject", request, timeout_seconds)

    async def fetch_object(self, object_id: str, *, timeout_seconds: float | None = None) -> FetchedObject:
        """What is kept under an id. Raises KakeyaError: ObjectNotFound where there is nothing."""
        request = runtime_pb2.FetchObjectRequest(id=object_id)
        response = await self._calls.repeated("FetchObject", request, timeout_seconds)
        return FetchedObject(response.data, response.version)

    async def update_object(
        self,
        object_id: str,
        data: bytes,
        *,
        version: int,
        appends: bool = False,
        ttl_seconds: int | None = None,
        timeout_seconds: float | None = None,
    ) -> int:
        """Changes an object that nobody else has changed since it was fetched.

        Args:
            data: in place of it. It has at most 1 MiB then.
            version: that it had.
            appends: behind what is there, instead.
            ttl_seconds: from now on; as of `store_object`.

        Returns:
            The version that it has now.

        Raises:
            KakeyaError: ObjectNotFound where there is none; ObjectChanged where it has another version, also where an
                attempt whose answer was lost has changed it; as `store_object`.
        """
        request = runtime_pb2.UpdateObjectRequest(id=object_id, version=version, data=data, appends=appends)
        response = await self._calls.repeated("UpdateObject", fill(request, ttl_seconds=ttl_seconds), timeout_seconds)
        return int(response.version)

    async def delete_object(self, object_id: str, *, timeout_seconds: float | None = None) -> None:
        """Forgets an object.

        Raises:
            KakeyaError: ObjectNotFound where there is none; also where an attempt whose answer was lost has deleted it.
        """
        request = runtime_pb2.DeleteObjectRequest(id=object_id)
        await self._calls.repeated("DeleteObject", request, timeout_seconds)
