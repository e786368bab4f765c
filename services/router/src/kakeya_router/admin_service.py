"""kakeya.admin.v1.AdminService: for operators."""

from kakeya_router.store.records import WorkerRecord
from kakeya_router.store.worker_store import WorkerStore
from kakeya_shared.rpc_boundary import Context
from kakeya_stubs.admin.v1 import admin_pb2 as pb
from kakeya_stubs.admin.v1 import admin_pb2_grpc

SERVICE = pb.DESCRIPTOR.services_by_name["AdminService"].full_name


class AdminService(admin_pb2_grpc.AdminServiceServicer):
    def __init__(self, workers: WorkerStore) -> None:
        self._workers = workers

    async def ListWorkers(self, request: pb.ListWorkersRequest, context: Context) -> pb.ListWorkersResponse:
        workers = await self._workers.all_workers()
        now_ms = await self._workers.now_ms()
        return pb.ListWorkersResponse(workers=[_status(worker, now_ms) for worker in workers])


def _status(worker: WorkerRecord, now_ms: int) -> pb.WorkerStatus:
    return pb.WorkerStatus(
        worker_id=worker.worker_id,
        incarnation=worker.incarnation,
        pool=worker.pool,
        model=worker.model,
        address=worker.address,
        backend=worker.backend,
        dtype=worker.dtype,
        slab_bytes=worker.slab_bytes,
        lane_bytes=worker.lane_bytes,
        num_lanes=worker.num_lanes,
        sink=worker.sink,
        window=worker.window,
        kv_bytes_per_token=worker.kv_bytes_per_token,
        vocab_size=worker.vocab_size,
        num_threads=worker.num_threads,
        weights=worker.weights,
        fingerprint=worker.fingerprint,
        exact=worker.exact,
        reserved_bytes=worker.reserved_bytes,
        kv_live_bytes=worker.kv_live_bytes,
        reported_kv_live_bytes=worker.reported_kv_live_bytes,
        num_sessions=worker.num_sessions,
        last_heartbeat_age_seconds=max(0, now_ms - worker.heartbeat_ms) / 1000,
    )
