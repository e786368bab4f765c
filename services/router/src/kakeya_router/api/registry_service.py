"""kakeya.worker.v1.RegistryService: workers join, beat and leave."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass
from typing import Literal

import grpc
import structlog

from kakeya_router.access import join_permits
from kakeya_router.api.tunnelling import Tunnelling
from kakeya_router.contract import validation, worker_claims
from kakeya_router.snapshots.snapshot_files import SnapshotFiles
from kakeya_router.store.fleet.heartbeat_store import HeartbeatStore, Said
from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.outcomes import JoinWorker
from kakeya_router.workers.fleet import Fleet
from kakeya_router.workers.worker_sweep import WorkerSweep
from kakeya_shared.contract.features import CONTRACT_VERSION
from kakeya_shared.errors.tree import IncompatibleContract, UnknownIncarnation, WorkerIdTaken
from kakeya_shared.rpc.rpc_boundary import Context
from kakeya_stubs.worker.v1 import registry_pb2 as pb
from kakeya_stubs.worker.v1 import registry_pb2_grpc

SERVICE = pb.DESCRIPTOR.services_by_name["RegistryService"].full_name
# N and N-1 interoperate.
_INTEROPERABLE = frozenset({CONTRACT_VERSION - 1, CONTRACT_VERSION})

_log = structlog.get_logger()


@dataclass(eq=False)
class RegistryService(registry_pb2_grpc.RegistryServiceServicer):
    """Serves workers: they join, beat, ask which files of snapshots nobody needs, and leave.

    What a worker says is checked by itself, and then against the join token that came with it, where the router asks
    for one. Heartbeats are its lease: a worker that misses them for so long is lost to all routers.
    """

    _store: WorkerStore
    _heartbeats: HeartbeatStore
    _fleet: Fleet
    _sweep: WorkerSweep
    _files: SnapshotFiles
    _tunnelling: Tunnelling
    _: KW_ONLY
    heartbeat_interval_seconds: float
    worker_lease_seconds: float

    def register(self, server: grpc.aio.Server) -> None:
        registry_pb2_grpc.add_RegistryServiceServicer_to_server(self, server)

    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.JoinResponse:
        if request.contract_version not in _INTEROPERABLE:
            raise IncompatibleContract(
                f"contract version {request.contract_version}; this router speaks {CONTRACT_VERSION}",
                metadata={"contract_version": str(CONTRACT_VERSION)},
            )
        worker = worker_claims.joined(request, join_permits.current().token_id)
        # Sessions look for their model in all pools: a worker that named another one here would be given those of it.
        join_permits.check(worker.pool, worker.worker_id, worker.model)
        outcome, model = await self._store.join(worker, again=request.again)
        while outcome is JoinWorker.SWEEPING:
            await self._sweep.sweep(worker.pool, worker.incarnation)
            outcome, model = await self._store.join(worker, again=request.again)
        if outcome is JoinWorker.OTHER_MODEL:
            raise validation.invalid("model", f"the pool {worker.pool!r} serves {model!r}")
        if outcome is JoinWorker.TAKEN:
            raise WorkerIdTaken(f"another worker has joined as {worker.worker_id!r} since, and is there")
        joined: Literal[JoinWorker.JOINED, JoinWorker.REPLACED, JoinWorker.RENEWED] = outcome
        self._fleet.look_soon()  # so that it gets sessions at once, of this router
        _log.info("worker joined", worker_id=worker.worker_id, incarnation=worker.incarnation, outcome=joined)
        return pb.JoinResponse(
            contract_version=CONTRACT_VERSION,
            heartbeat_interval_seconds=self.heartbeat_interval_seconds,
            lease_seconds=self.worker_lease_seconds,
            router_addresses=await self._store.routers(),
        )

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> pb.HeartbeatResponse:
        identity, lanes = worker_claims.identity(request), worker_claims.lanes(request)
        join_permits.check(identity.pool, identity.worker_id)
        strange = [lane for lane in lanes if not worker_claims.may_be_leased(lane)]
        answer = await self._heartbeats.heartbeat(
            Said(
                identity,
                kv_live_bytes=request.kv_live_bytes,
                rss_bytes=request.rss_bytes,
                leaving=request.draining,
                number=request.number,
                tunnels=worker_claims.tunnels(request),
                lanes=[lane for lane in lanes if lane not in strange] if strange else lanes,
            )
        )
        if not answer.is_registered:
            raise UnknownIncarnation("not registered, or lost in the meantime; join again")
        orphans = [*strange, *answer.orphans]
        return pb.HeartbeatResponse(
            orphans=[pb.OrphanLane(session_id=o.session_id, epoch=o.epoch) for o in orphans if request.complete],
            router_addresses=answer.routers,
        )

    async def SweepSnapshots(self, request: pb.SweepSnapshotsRequest, context: Context) -> pb.SweepSnapshotsResponse:
        identity = worker_claims.identity(request)
        worker_claims.check_sweep(request)
        join_permits.check(identity.pool, identity.worker_id)
        return pb.SweepSnapshotsResponse(orphans=await self._files.orphans(identity.pool, request.names))

    async def Tunnel(
        self, requests: AsyncIterator[pb.TunnelRequest], context: Context
    ) -> AsyncGenerator[pb.TunnelResponse, None]:
        async with aclosing(self._tunnelling.hold(requests, context)) as responses:
            async for response in responses:
                yield response

    async def Leave(self, request: pb.LeaveRequest, context: Context) -> pb.LeaveResponse:
        identity = worker_claims.identity(request)
        join_permits.check(identity.pool, identity.worker_id)
        if await self._store.drop(identity, lapsed_only=False):
            _log.info("worker left", worker_id=identity.worker_id, incarnation=identity.incarnation)
        return pb.LeaveResponse()
