"""Stands before every call: a worker whose lease has lapsed answers none."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kakeya_shared.rpc.tracing import Metadata
from kakeya_worker.joining.lease import Lease

SERVICE_NAME: Final = "kakeya.worker.v1.VerifierService"

_OPEN: Final = frozenset({f"/{SERVICE_NAME}/GetSlab", f"/{SERVICE_NAME}/Acknowledge"})
"""What is counted is no session's. Acknowledgements belong to a call that was let in: refused once, they are not sent
again, and the call would pause for good where the lease is renewed."""


@dataclass(frozen=True, slots=True)
class Fence:
    """A `rpc_boundary.Guard`. What runs already goes on until a router is heard: nobody can journal it."""

    _lease: Lease

    async def __call__(self, method: str, metadata: Metadata) -> Mapping[str, str]:
        """Raises StaleEpoch, NoWorker."""
        if method not in _OPEN:
            await self._lease.check()
        return {}
