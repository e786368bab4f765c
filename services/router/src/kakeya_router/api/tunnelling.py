"""Tunnel of the workers' service: who may keep one here, and for how long."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field

from kakeya_router.access import join_permits
from kakeya_router.access.access_guard import TUNNEL, AccessGuard
from kakeya_router.contract import validation, worker_claims
from kakeya_router.store.fleet.worker_store import Identity, WorkerStore
from kakeya_router.tunnels.tunnel import Failed
from kakeya_router.tunnels.tunnels import Tunnels
from kakeya_router.workers.fleet import Fleet
from kakeya_shared.errors.tree import InvalidField, PermissionDenied, UnknownIncarnation
from kakeya_shared.rpc.rpc_boundary import Context
from kakeya_shared.rpc.tracing import Metadata
from kakeya_stubs.worker.v1 import registry_pb2 as pb


@dataclass(eq=False)
class Tunnelling:
    """Lets in the incarnation of a worker that this token has joined; asks again and again.

    Args:
        guard: None: no tokens are asked for.
    """

    _store: WorkerStore
    _fleet: Fleet
    _tunnels: Tunnels
    _guard: AccessGuard | None
    _welcome: pb.TunnelResponse.Welcome | None = field(default=None, init=False)

    def open(self, router: str, address: str, *, is_secured: bool) -> None:
        """From now on workers are let in: told are this router's name, and where its tunnel port is."""
        self._welcome = pb.TunnelResponse.Welcome(router=router, address=address, tls=is_secured)

    async def hold(
        self, requests: AsyncIterator[pb.TunnelRequest], context: Context
    ) -> AsyncGenerator[pb.TunnelResponse, None]:
        """Raises InvalidField, PermissionDenied, UnknownIncarnation, and as `Tunnels.hold`."""
        first = await anext(aiter(requests), pb.TunnelRequest())
        if self._welcome is None:
            raise InvalidField("this router has no tunnel port (--tunnel-bind)", metadata={"field": "tunnel"})
        if not first.HasField("begin"):
            raise validation.invalid("begin", "comes first")
        worker = worker_claims.identity(first.begin)
        await self._admit(worker)
        metadata: Metadata = tuple(context.invocation_metadata() or ())  # type: ignore[arg-type]  # what is read is text

        async def still_admitted() -> None:
            if self._guard is not None:
                await self._guard(TUNNEL, metadata)
            if self._fleet.worker(worker.incarnation) is None and await self._store.worker(*worker[:2]) is None:
                raise UnknownIncarnation("lost in the meantime; join again")

        yield pb.TunnelResponse(welcome=self._welcome)
        async with aclosing(self._tunnels.hold(worker, _said(requests), still_admitted)) as dials:
            async for dial in dials:
                yield pb.TunnelResponse(dial=None if dial is None else pb.TunnelResponse.Dial(dial=dial))

    async def _admit(self, worker: Identity) -> None:
        """Raises PermissionDenied, UnknownIncarnation."""
        join_permits.check(worker.pool, worker.worker_id)
        record = await self._store.worker(worker.pool, worker.worker_id)
        if record is None or record.incarnation != worker.incarnation:
            raise UnknownIncarnation("not registered, or lost in the meantime; join again")
        if not record.is_tunnelled:
            raise PermissionDenied("this worker has joined with an address")
        if record.token_id != join_permits.current().token_id:
            raise PermissionDenied("this worker has joined with another token; join again")


async def _said(requests: AsyncIterator[pb.TunnelRequest]) -> AsyncGenerator[Failed | None, None]:
    async for request in requests:
        yield Failed(request.failed.dial, request.failed.why) if request.HasField("failed") else None
