"""Keeps this worker registered: joins a router, sends heartbeats, frees what no lease covers."""

import asyncio
import math
import random
import secrets
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

import grpc
import structlog

from kakeya_shared.contract.features import CONTRACT_VERSION
from kakeya_shared.errors.tree import (
    IncompatibleContract,
    KakeyaError,
    PermissionDenied,
    Unauthenticated,
    UnknownIncarnation,
    WorkerIdTaken,
)
from kakeya_shared.process.service_process import StartError
from kakeya_stubs.worker.v1 import registry_pb2 as pb
from kakeya_stubs.worker.v1.registry_pb2_grpc import RegistryServiceStub
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.lane_table import LaneReport
from kakeya_worker.joining.heartbeat import Heartbeat, of_lanes
from kakeya_worker.joining.lease import Lease
from kakeya_worker.joining.router_answer import TOKEN_CURE, Failure, answered, reason, trouble
from kakeya_worker.joining.router_link import RouterLink, TokenError
from kakeya_worker.joining.worker_identity import FEATURES, WorkerIdentity
from kakeya_worker.metrics import WorkerMetrics, no_metrics

if TYPE_CHECKING:  # exists in the stubs' types only
    from kakeya_stubs.worker.v1.registry_pb2_grpc import RegistryServiceAsyncStub

_VERSION_BEFORE = CONTRACT_VERSION - 1  # which knows no features
_CALL_SECONDS = 2.0
_RETRY_SECONDS = 1.0
# From one report of all lanes to the next, give or take a quarter: so late a lane is freed that no lease covers.
_COMPLETE_SECONDS = 30.0
_log = structlog.get_logger()


class Registration:
    """The worker's side of kakeya.worker.v1.RegistryService.

    State is in Redis behind every router, so any router will do: they are tried in turn, those of --join and
    those that the last answer named.

    Attributes:
        joined: set once a router has let this worker in.
        cut_off: set while no router answers.
        last_heartbeat: that a router has answered.
        lease: of the incarnation, by this worker's clock.
    """

    def __init__(
        self,
        engine: Engine,
        identity: WorkerIdentity,
        routers: Sequence[str],
        link: RouterLink | None = None,
        metrics: WorkerMetrics | None = None,
        lease: Lease | None = None,
    ) -> None:
        self._engine = engine
        self._link = link or RouterLink()
        self._identity = identity
        self._seeds = tuple(routers)
        self._routers = list(routers)  # the one in use comes first
        self._incarnation = ""
        self._heartbeat_seconds = 1.0
        self._metrics = metrics or no_metrics()
        self._num_failed = 0  # routers in a row that did not answer
        self._num_heartbeats = 0  # of the incarnation
        self.last_heartbeat = Heartbeat()
        self.lease = lease or Lease()
        self._is_draining = False
        self._tunnels: Sequence[str] = ()
        self._beat_now = asyncio.Event()
        self._joins_again = False
        self._draining_heard = asyncio.Event()
        self.joined = asyncio.Event()
        self.cut_off = asyncio.Event()

    @property
    def identity(self) -> WorkerIdentity:
        return self._identity

    @property
    def incarnation(self) -> str:
        """What routers know this worker by; another one once they have given it up."""
        return self._incarnation

    @property
    def routers(self) -> list[str]:
        """Addresses, the one in use first."""
        return list(self._routers)

    def tell_tunnels(self, routers: Sequence[str]) -> None:
        """Has heartbeats say from now on which routers this worker has tunnels to, the first at once."""
        self._tunnels = routers
        self._beat_now.set()

    def join_again(self) -> None:
        """A router does not know this incarnation, or not by this token."""
        self._joins_again = True
        self._beat_now.set()

    async def run(self) -> None:
        """Joins and stays joined until cancelled.

        Raises:
            StartError: the router speaks another version of the contract, or has never let this worker in.
        """
        while True:
            try:
                async with self._link.open(self._routers[0]) as channel:
                    registry = RegistryServiceStub(channel)
                    await self._join(registry)
                    await self._keep_alive(channel, registry)
            except UnknownIncarnation:
                # The router gave our sessions up: their lanes must not outlive their leases.
                _log.warning(
                    "lease lost; all lanes are freed (this worker was stopped for too long, another worker has the "
                    "same id, or Redis lost its data)",
                    worker_id=self._identity.worker_id,
                )
                self._metrics.lost_leases.inc()
                await self._begin_anew()
            except WorkerIdTaken as error:
                await self._begin_anew()
                await self._try_the_next(error)
            except (grpc.aio.AioRpcError, KakeyaError, TokenError) as error:
                await self._try_the_next(error)

    async def orphans(self, names: Sequence[str]) -> list[str]:
        """Those of the snapshot files that no session needs.

        Raises:
            AioRpcError, KakeyaError, TokenError: the router in use does not say.
        """
        request = pb.SweepSnapshotsRequest(
            pool=self._identity.pool,
            worker_id=self._identity.worker_id,
            incarnation=self._incarnation,
            names=names,
        )
        async with self._link.open(self._routers[0]) as channel:
            call = RegistryServiceStub(channel).SweepSnapshots
            reply = await answered(call(request, timeout=_CALL_SECONDS, metadata=self._link.token.metadata()))
        return list(reply.orphans)

    async def announce_draining(self, timeout_seconds: float) -> None:
        """Has all heartbeats from now on say that this worker shuts down, the first at once; waits for its answer."""
        self._is_draining = True
        self._beat_now.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._draining_heard.wait()

    async def leave(self) -> None:
        """Deregisters, as far as a router can be reached. Call after `run` was cancelled."""
        if not self.joined.is_set():
            return
        request = pb.LeaveRequest(
            pool=self._identity.pool, worker_id=self._identity.worker_id, incarnation=self._incarnation
        )
        try:
            async with self._link.open(self._routers[0]) as channel:
                registry = RegistryServiceStub(channel)
                await answered(registry.Leave(request, timeout=_CALL_SECONDS, metadata=self._link.token.metadata()))
        except (grpc.aio.AioRpcError, KakeyaError, TokenError) as error:
            _log.warning("could not deregister; the lease will lapse", reason=reason(error))

    async def _begin_anew(self) -> None:
        """As another incarnation, which has no lanes."""
        self.lease.lose()
        await asyncio.wrap_future(self._engine.reset())
        self._incarnation = ""
        self._num_heartbeats = 0

    async def _join(self, registry: "RegistryServiceAsyncStub") -> None:
        # A router that merely restarted, or another one, finds the same incarnation and keeps its sessions.
        self._incarnation = self._incarnation or secrets.token_hex(16)
        try:
            reply = await self._let_in(registry)
        except IncompatibleContract as error:
            raise StartError(error.message) from error
        except (Unauthenticated, PermissionDenied) as error:
            if self.joined.is_set():
                raise
            raise StartError(f"the router does not let this worker in: {error.message}; {TOKEN_CURE}") from error
        self._heartbeat_seconds = reply.heartbeat_interval_seconds
        self._learn(reply.router_addresses)
        self.joined.set()
        _log.info("joined", router=self._routers[0], incarnation=self._incarnation)

    async def _let_in(self, registry: "RegistryServiceAsyncStub") -> pb.JoinResponse:
        """Joins by today's contract, or by the one before where the router speaks no other."""
        try:
            return await self._ask_in(registry, CONTRACT_VERSION, self._identity.features(FEATURES))
        except IncompatibleContract as error:
            if error.metadata.get("contract_version") != str(_VERSION_BEFORE):
                raise
            _log.info("the router is of an older version: it is joined without features", router=self._routers[0])
            return await self._ask_in(registry, _VERSION_BEFORE, ())

    async def _ask_in(
        self, registry: "RegistryServiceAsyncStub", contract_version: int, features: Sequence[str]
    ) -> pb.JoinResponse:
        request = self._identity.join_request(self._engine, self._incarnation, contract_version, features)
        request.again = self.joined.is_set()
        metadata = self._link.token.metadata()
        with self.lease.asked_for() as asked_at:
            reply = await answered(registry.Join(request, timeout=_CALL_SECONDS, metadata=metadata))
            self.lease.grant(self._incarnation, asked_at, reply.lease_seconds)
        return reply

    async def _keep_alive(self, channel: grpc.aio.Channel, registry: "RegistryServiceAsyncStub") -> None:
        """Sends heartbeats, each with what changed since the last that was answered, until one fails, it is to join
        again, or the connection has ended: behind the same name may be another router, with another interval or lease.
        """
        answered_revision = 0
        complete_at = -math.inf
        pause = random.random()  # so that workers that join together do not beat together
        self._joins_again = False
        while not self._joins_again and channel.get_state() is grpc.ChannelConnectivity.READY:
            is_complete = time.monotonic() >= complete_at
            reports = self._engine.lanes.reports(0 if is_complete else answered_revision)
            request = self._heartbeat_request(reports, is_complete=is_complete)
            reply = await self._beat(registry, request)
            self._num_failed = 0  # not before: a router that takes a join may still refuse what is reported
            self.cut_off.clear()
            if request.draining:
                self._draining_heard.set()
            self._learn(reply.router_addresses)
            if is_complete:
                complete_at = time.monotonic() + _COMPLETE_SECONDS * random.uniform(0.75, 1.25)
            answered_revision = max((report.revision for report in reports), default=answered_revision)
            self._free(reply.orphans)
            await self._pause(pause * self._heartbeat_seconds)
            pause = 1.0

    async def _beat(self, registry: "RegistryServiceAsyncStub", request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        metadata, began, outcome = self._link.token.metadata(), time.monotonic(), "failed"
        try:
            with self.lease.asked_for() as asked_at:
                reply = await answered(registry.Heartbeat(request, timeout=_CALL_SECONDS, metadata=metadata))
            self.lease.renew(asked_at)
            outcome = "answered"
        finally:
            self._metrics.heartbeat_seconds.labels(outcome).observe(time.monotonic() - began)
        self.last_heartbeat = Heartbeat(request.number, request.kv_live_bytes)
        return reply

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._beat_now.wait()
        self._beat_now.clear()

    def _learn(self, addresses: Sequence[str]) -> None:
        self._routers = list(dict.fromkeys([self._routers[0], *addresses, *self._seeds]))

    def _free(self, orphans: Sequence[pb.OrphanLane]) -> None:
        """Has the engine free lanes between two steps; heartbeats do not wait for it."""
        for orphan in orphans:
            _log.warning("freeing a lane that no lease covers", session_id=orphan.session_id, epoch=orphan.epoch)
            closed = self._engine.close(orphan.session_id, orphan.epoch)
            closed.add_done_callback(_log_if_freed_already)

    def _heartbeat_request(self, reports: Sequence[LaneReport], *, is_complete: bool) -> pb.HeartbeatRequest:
        self._num_heartbeats += 1
        request = of_lanes(self._engine.lanes.totals(), reports)
        request.pool, request.worker_id = self._identity.pool, self._identity.worker_id
        request.incarnation, request.number = self._incarnation, self._num_heartbeats
        request.complete, request.draining = is_complete, self._is_draining
        request.tunnels.extend(self._tunnels)
        return request

    async def _try_the_next(self, error: Failure) -> None:
        """Turns to the next router at once, since the lease goes on; pauses when none has answered."""
        if self._num_failed == 0:
            _log.warning(trouble(error), routers=self._routers, reason=reason(error))
        self._num_failed += 1
        self._routers.append(self._routers.pop(0))
        if self._num_failed % len(self._routers) == 0:
            self.cut_off.set()
            await asyncio.sleep(_RETRY_SECONDS)


def _log_if_freed_already(closed: "Future[int]") -> None:
    error = closed.exception()
    if error is not None:
        _log.info("a lane that no lease covers was freed already", error=str(error))
