"""The worker process: listen, load, join, serve, leave."""

import asyncio
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import structlog

from kakeya_shared.contract import labels
from kakeya_shared.metrics.exposition import Exposition, ExpositionError
from kakeya_shared.metrics.meters import Meters
from kakeya_shared.process.service_process import StartError
from kakeya_shared.rpc.metric_export import MetricExport
from kakeya_shared.rpc.otlp import METRICS
from kakeya_shared.rpc.served_calls import CallMeters
from kakeya_shared.rpc.server import BindError, RpcServer
from kakeya_shared.settings.addresses import NOWHERE, parse_list
from kakeya_stubs.worker.v1.verifier_pb2_grpc import add_VerifierServiceServicer_to_server
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.gauges import SlabGauges
from kakeya_worker.grammars.grammars import Grammars
from kakeya_worker.joining.heartbeat_gauges import HeartbeatGauges
from kakeya_worker.joining.lease import Lease
from kakeya_worker.joining.registration import Registration
from kakeya_worker.loading import load_engine
from kakeya_worker.membership import Way, own_identity, place_to_listen, way_to_routers
from kakeya_worker.metrics import PREFIX, WorkerMetrics
from kakeya_worker.service.verifier_service import SERVICE_NAME, VerifierService
from kakeya_worker.settings import WorkerSettings
from kakeya_worker.snapshot_stores.configured import configured_store
from kakeya_worker.snapshots.snapshot_store import SnapshotStore
from kakeya_worker.snapshots.snapshot_sweep import SnapshotSweep
from kakeya_worker.snapshots.snapshots import Snapshots
from kakeya_worker.tunnels.tunnels import Tunnels

_log = structlog.get_logger()
_HEARD_SECONDS = 1.0  # a router answers within milliseconds, or not at all
_LAST_ANSWERS_SECONDS = 0.5  # the engine has used its grace by then; this only lets answers out


async def serve(settings: WorkerSettings, stop: asyncio.Event) -> None:
    """Runs a worker until `stop` is set or its engine dies. Raises StartError."""
    if flaw := labels.flaw(settings.model_name, labels.MAX_MODEL_BYTES):
        raise StartError(f"the model's name {settings.model_name!r}: {flaw}; --served-model-name gives it another")
    lease = Lease() if settings.join else None
    service = VerifierService(lease)
    metrics = WorkerMetrics(Meters(is_on=settings.metrics_bind != NOWHERE or METRICS.is_wanted()))
    way = way_to_routers(settings)
    store = configured_store(settings.snapshots, settings.snapshot_key_file)
    with place_to_listen(settings) as bind:
        server = RpcServer(
            bind,
            [SERVICE_NAME],
            settings=settings,
            grace_seconds=_LAST_ANSWERS_SECONDS,
            guard=service.let_in,
            meters=CallMeters(metrics.meters, PREFIX),
        )
        add_VerifierServiceServicer_to_server(service, server.grpc_server)
        await _load_and_serve(settings, stop, metrics, service, server, way, store, lease)


async def _load_and_serve(
    settings: WorkerSettings,
    stop: asyncio.Event,
    metrics: WorkerMetrics,
    service: VerifierService,
    server: RpcServer,
    way: Way,
    store: SnapshotStore | None,
    lease: Lease | None,
) -> None:
    """Raises StartError."""
    try:
        shown = Exposition(metrics.meters, settings.metrics_bind)
        async with server, shown as exposition, MetricExport(metrics.meters, "worker"):
            gauges = SlabGauges(metrics.meters), HeartbeatGauges(metrics.meters)
            engine = await _load_unless_stopped(settings, stop, metrics)
            if engine is None:
                return
            engine.start()
            snapshots = Snapshots(engine, store, metrics)
            facts = engine.facts
            grammars = await asyncio.to_thread(Grammars, facts.tokenizer, facts.tokenizer_digest, facts.vocab_size)
            service.begin(engine, snapshots, grammars)
            identity = own_identity(settings, server.address, store, grammars)
            registration = Registration(engine, identity, parse_list(settings.join), way.link, metrics, lease)
            sweep = SnapshotSweep(
                registration, snapshots, identity.pool, interval_seconds=settings.snapshot_sweep_seconds
            )
            background = [registration.run(), *([sweep.run()] if store else [])] if settings.join else []
            if server.socket is not None:
                background.append(Tunnels(registration, way.link, server.socket, way.tls, metrics).run())
            metrics.meters.before_reading(gauges[0].refresher(engine))
            metrics.meters.before_reading(gauges[1].refresher(lambda: registration.last_heartbeat))
            addresses = {"address": server.address, "metrics": exposition.address or NOWHERE}
            try:
                await _serve_until(stop, engine, snapshots, server, settings, registration, background, addresses)
            finally:
                service.end()
    except (BindError, ExpositionError) as error:
        raise StartError(str(error)) from error


async def _load_unless_stopped(settings: WorkerSettings, stop: asyncio.Event, metrics: WorkerMetrics) -> Engine | None:
    """Loads in a thread that dies with the process: a stop need not wait for a download. Raises StartError."""
    loaded: Future[Engine] = Future()

    def load() -> None:
        try:
            loaded.set_result(load_engine(settings, metrics))
        except BaseException as error:
            loaded.set_exception(error)

    threading.Thread(target=load, name="load", daemon=True).start()
    stopping = asyncio.ensure_future(stop.wait())
    loading = asyncio.wrap_future(loaded)
    ends: list[asyncio.Future[Any]] = [stopping, loading]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    return None if stop.is_set() else await loading


async def _serve_until(
    stop: asyncio.Event,
    engine: Engine,
    snapshots: Snapshots,
    server: RpcServer,
    settings: WorkerSettings,
    registration: Registration,
    background: Sequence[Coroutine[Any, Any, None]],
    addresses: Mapping[str, str],
) -> None:
    tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(stop.wait()), asyncio.wrap_future(engine.crashed)]
    tasks += [asyncio.ensure_future(work) for work in background]
    try:
        await server.set_serving(True)
        _log.info("serving", **addresses)
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        ends_at = time.monotonic() + settings.shutdown_grace_seconds
        # Heartbeats go on meanwhile: leaving would make the sessions lost.
        await server.set_serving(False)
        is_joined = registration.joined.is_set() and not any(task.done() for task in tasks[2:])
        await _drain(engine, registration if is_joined else None, ends_at)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await registration.leave()
        await asyncio.to_thread(snapshots.close, _seconds_until(ends_at))


async def _drain(engine: Engine, registration: Registration | None, ends_at: float) -> None:
    """Ends the engine once routers have taken all sessions away, at the latest when the grace is over.

    Args:
        registration: None: no router knows of the sessions, and only running operations are waited for.
        ends_at: the end of the grace, on the monotonic clock.
    """
    if registration is None:
        await asyncio.to_thread(engine.shut_down, _seconds_until(ends_at))
        return
    if engine.lanes.totals().num_lanes_in_use:
        # First, so that routers place nobody here any more when new sessions begin to be refused.
        await registration.announce_draining(min(_HEARD_SECONDS, _seconds_until(ends_at)))
    ending = asyncio.ensure_future(asyncio.to_thread(engine.shut_down, _seconds_until(ends_at), until_empty=True))
    cut_off = asyncio.ensure_future(registration.cut_off.wait())
    await asyncio.wait([ending, cut_off], return_when=asyncio.FIRST_COMPLETED)
    if not ending.done():
        _log.info("no router answers; idle sessions are left to the lease")
        engine.abandon_idle()
    await ending
    cut_off.cancel()


def _seconds_until(moment: float) -> float:
    return max(0.0, moment - time.monotonic())
