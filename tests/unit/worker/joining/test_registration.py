"""Staying registered, against a scripted registry on a real socket: joins, heartbeats, orphans, lost leases."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import structlog
from pydantic import SecretStr

from kakeya_shared.contract.features import CONTRACT_VERSION
from kakeya_shared.errors.tree import (
    IncompatibleContract,
    InvalidField,
    KakeyaError,
    PermissionDenied,
    StaleEpoch,
    StoreUnavailable,
    Unauthenticated,
    UnknownIncarnation,
    WorkerIdTaken,
)
from kakeya_shared.metrics.meters import Meters
from kakeya_shared.process.service_process import StartError
from kakeya_shared.rpc.rpc_boundary import Context
from kakeya_shared.rpc.server import RpcServer
from kakeya_shared.rpc.tls import ClientTls
from kakeya_shared.rpc.tracing import Metadata
from kakeya_shared.settings.service import RpcServerSettings
from kakeya_stubs.worker.v1 import registry_pb2 as pb
from kakeya_stubs.worker.v1.registry_pb2_grpc import RegistryServiceServicer, add_RegistryServiceServicer_to_server
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.operation import Append
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions
from kakeya_worker.joining import registration
from kakeya_worker.joining.heartbeat_gauges import HeartbeatGauges
from kakeya_worker.joining.lease import Lease
from kakeya_worker.joining.registration import Registration
from kakeya_worker.joining.router_link import JoinToken, RouterLink, TokenError
from kakeya_worker.joining.worker_identity import FEATURES, WorkerIdentity
from kakeya_worker.metrics import WorkerMetrics
from kakeya_worker.torch_backend import TorchVerifier
from tests.certificates import Authority
from tests.scrape import Exposition

IDENTITY = WorkerIdentity("w-1", "demo", "Demo", "127.0.0.1:7", num_threads=1, grammar_library="grammar-library-1")
BYTES = 2_048
BALLAST_BYTES = 128 << 20


class Registry(RegistryServiceServicer):
    """Remembers what workers say and answers as the test wants."""

    def __init__(self) -> None:
        self.joins: asyncio.Queue[pb.JoinRequest] = asyncio.Queue()
        self.heartbeats: asyncio.Queue[pb.HeartbeatRequest] = asyncio.Queue()
        self.leaves: asyncio.Queue[pb.LeaveRequest] = asyncio.Queue()
        self.known: set[str] = set()
        self.orphans: list[pb.OrphanLane] = []
        self.contract_version = CONTRACT_VERSION  # the only one that it speaks
        self.lease_seconds = 0.0
        self.join_refusal: KakeyaError | None = None
        self.token = ""  # that is asked for, unless empty
        self.refusal: KakeyaError = Unauthenticated("no good token")
        self.heartbeat_refusal: KakeyaError | None = None
        self.shown: list[str] = []  # tokens of the calls that came so far
        self.routers: list[str] = []
        self.heartbeat_seconds = 0.02

    async def guard(self, method: str, metadata: Metadata) -> dict[str, str]:
        shown = dict(metadata).get("authorization", "")
        self.shown.append(f"{method.rpartition('/')[2]} {shown}")
        if self.token and shown != f"Bearer {self.token}":
            raise self.refusal
        return {}

    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.JoinResponse:
        if request.contract_version != self.contract_version:
            version = str(self.contract_version)
            raise IncompatibleContract(f"this router speaks version {version}", metadata={"contract_version": version})
        await self.joins.put(request)
        if self.join_refusal is not None:
            raise self.join_refusal
        self.known.add(request.incarnation)
        return pb.JoinResponse(
            contract_version=1,
            heartbeat_interval_seconds=self.heartbeat_seconds,
            lease_seconds=self.lease_seconds,
            router_addresses=self.routers,
        )

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> pb.HeartbeatResponse:
        if request.incarnation not in self.known:
            raise UnknownIncarnation("lost")
        if self.heartbeat_refusal is not None:
            raise self.heartbeat_refusal
        await self.heartbeats.put(request)
        return pb.HeartbeatResponse(orphans=self.orphans, router_addresses=self.routers)

    async def Leave(self, request: pb.LeaveRequest, context: Context) -> pb.LeaveResponse:
        await self.leaves.put(request)
        return pb.LeaveResponse()


@asynccontextmanager
async def _serving(registry: Registry, address: str = "127.0.0.1:0", **settings: Any) -> AsyncIterator[str]:
    server = RpcServer(
        address,
        ["kakeya.worker.v1.RegistryService"],
        settings=RpcServerSettings.model_construct(**settings),
        grace_seconds=0,
        guard=registry.guard,
    )
    add_RegistryServiceServicer_to_server(registry, server.grpc_server)
    async with server:
        yield server.address


@asynccontextmanager
async def _running(registration: Registration) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.create_task(registration.run())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, StartError):
            await task


@pytest.fixture
def engine(verifier: TorchVerifier) -> Iterator[Engine]:
    verifier.facts = replace(verifier.facts, tokenizer_digest="d" * 64)
    engine = Engine(verifier, LaneGeometry(4, 64, 32), num_lanes=2, step_tokens=64)
    engine.start()
    engine.open("s", 1, SessionOptions()).result(60)
    yield engine
    engine.shut_down()


@pytest.fixture(autouse=True)
def _often_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "_COMPLETE_SECONDS", 0.2)


async def _heartbeat(registry: Registry, *, complete: bool) -> pb.HeartbeatRequest:
    """The next heartbeat of one kind."""
    while True:
        heartbeat = await asyncio.wait_for(registry.heartbeats.get(), 60)
        if heartbeat.complete == complete:
            return heartbeat


async def test_it_says_what_it_is_and_what_it_holds(engine: Engine) -> None:
    registry = Registry()
    async with _serving(registry) as address:
        registration = Registration(engine, replace(IDENTITY, snapshot_free_bytes=7), [address])
        async with _running(registration):
            join = await asyncio.wait_for(registry.joins.get(), 60)
            assert join.incarnation
            assert join == pb.JoinRequest(
                contract_version=CONTRACT_VERSION,
                features=[*FEATURES, "grammar-library-1"],
                worker_id="w-1",
                incarnation=join.incarnation,
                pool="demo",
                model="Demo",
                address="127.0.0.1:7",
                backend="torch",
                dtype="float32",
                weights="float32",
                fingerprint=engine.facts.fingerprint,
                exact=False,
                slab_bytes=2 * 114 * BYTES,
                lane_bytes=114 * BYTES,
                num_lanes=2,
                sink=4,
                window=64,
                kv_bytes_per_token=BYTES,
                vocab_size=1024,
                num_threads=1,
                tokenizer_digest="d" * 64,
                model_digest=engine.facts.model_digest,
                snapshot_free_bytes=7,
            )
            assert len(join.model_digest) == 64
            first = await _heartbeat(registry, complete=True)
            assert [lane.session_id for lane in first.lanes] == ["s"]
            append = Append("s", 1, 0, tuple(range(10)))
            engine.submit(append)
            await asyncio.wrap_future(append.future)
            while not (changed := await _heartbeat(registry, complete=False)).lanes:
                pass
            (lane,) = changed.lanes
            assert lane == pb.LaneReport(
                session_id="s",
                epoch=1,
                history_length=10,
                kv_live_bytes=10 * BYTES,
                retained=[pb.LaneReport.Range(start=0, end=10)],
                lane=0,
            )
            assert (changed.kv_live_bytes, changed.num_lanes_in_use) == (10 * BYTES, 1)
            again = await _heartbeat(registry, complete=True)
            assert [lane.history_length for lane in again.lanes] == [10]
        await registration.leave()
        assert (await registry.leaves.get()).incarnation == join.incarnation


async def test_workers_that_join_together_do_not_beat_together(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first interval is a part of one, drawn by each; all others are whole."""
    monkeypatch.setattr("kakeya_worker.joining.registration.random.random", lambda: 1e-6)
    registry = Registry()
    registry.heartbeat_seconds = 3600.0
    async with _serving(registry) as address:
        joining = Registration(engine, IDENTITY, [address])
        async with _running(joining):
            for number in (1, 2):
                assert (await asyncio.wait_for(registry.heartbeats.get(), 60)).number == number
            await asyncio.sleep(0.2)
            assert registry.heartbeats.empty()


async def test_every_heartbeat_says_how_much_memory_the_process_holds_by_then(engine: Engine) -> None:
    registry = Registry()
    async with _serving(registry) as address, _running(Registration(engine, IDENTITY, [address])):
        before = await _heartbeat(registry, complete=True)
        assert before.rss_bytes == pytest.approx(psutil.Process().memory_info().rss, rel=0.1)
        ballast = bytearray(b"x") * BALLAST_BYTES  # written, so that it is resident
        registry.heartbeats = asyncio.Queue()
        await _heartbeat(registry, complete=False)  # may have been on its way
        after = await _heartbeat(registry, complete=False)
        assert after.rss_bytes - before.rss_bytes == pytest.approx(len(ballast), rel=0.3)


async def test_lanes_that_no_lease_covers_are_freed(engine: Engine) -> None:
    registry = Registry()
    registry.orphans = [pb.OrphanLane(session_id="s", epoch=1), pb.OrphanLane(session_id="gone", epoch=1)]
    async with _serving(registry) as address, _running(Registration(engine, IDENTITY, [address])):
        while (await _heartbeat(registry, complete=False)).num_lanes_in_use:
            pass
    assert engine.lanes.totals().num_lanes_in_use == 0


async def test_a_lost_lease_frees_every_lane_and_joins_anew(engine: Engine) -> None:
    registry = Registry()
    async with _serving(registry) as address, _running(Registration(engine, IDENTITY, [address])):
        first = await asyncio.wait_for(registry.joins.get(), 60)
        registry.known.clear()
        second = await asyncio.wait_for(registry.joins.get(), 60)
    assert first.incarnation != second.incarnation
    assert engine.lanes.totals().num_lanes_in_use == 0


async def test_one_that_was_replaced_waits_with_no_lanes_until_its_id_is_free(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kakeya_worker.joining.registration._RETRY_SECONDS", 0.02)
    registry = Registry()
    with structlog.testing.capture_logs() as logs:
        async with _serving(registry) as address:
            registration = Registration(engine, IDENTITY, [address])
            async with _running(registration):
                assert not (await asyncio.wait_for(registry.joins.get(), 60)).again
                await _heartbeat(registry, complete=True)
                registry.join_refusal = WorkerIdTaken("another worker has it")
                registry.known.clear()
                refused = [await asyncio.wait_for(registry.joins.get(), 60) for _ in range(3)]
                assert all(request.again for request in refused)
                assert engine.lanes.totals().num_lanes_in_use == 0
                with pytest.raises(StaleEpoch):
                    await registration.lease.check()
                registry.join_refusal = None
                await _until_beating(registry)
                await registration.lease.check()
    assert sum("another worker has joined under this worker's id" in log["event"] for log in logs) == 1


async def _until_beating(registry: Registry) -> None:
    while not registry.heartbeats.empty():
        registry.heartbeats.get_nowait()
    await _heartbeat(registry, complete=False)


@pytest.mark.parametrize("refusal", [StoreUnavailable("Redis is away"), InvalidField("no")])
async def test_its_lease_lapses_unless_a_router_says_that_none_ages(
    engine: Engine, refusal: KakeyaError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kakeya_worker.joining.registration._RETRY_SECONDS", 0.02)
    registry, now = Registry(), [0.0]
    registry.lease_seconds = 5.0
    lease = Lease(lambda: now[0])
    async with _serving(registry) as address, _running(Registration(engine, IDENTITY, [address], lease=lease)):
        await _heartbeat(registry, complete=True)
        registry.heartbeat_refusal = registry.join_refusal = refusal
        await _refused(registry, 2)
        now[0] = 4.0
        await _refused(registry, 2)  # one of which was asked at 4
        now[0] = 8.0
        if isinstance(refusal, StoreUnavailable):
            await lease.check()
        else:
            with pytest.raises(StaleEpoch):
                await lease.check()
        registry.heartbeat_refusal = registry.join_refusal = None
        await _until_beating(registry)
        await lease.check()


async def _refused(registry: Registry, number: int) -> None:
    """So many joins that come from now on."""
    while not registry.joins.empty():
        registry.joins.get_nowait()
    for _ in range(number):
        await asyncio.wait_for(registry.joins.get(), 60)


async def test_when_a_router_goes_the_next_is_tried_and_the_sessions_stay(engine: Engine) -> None:
    first, second = Registry(), Registry()
    async with _serving(second) as second_address:
        first.routers = [second_address]
        async with _serving(first) as first_address:
            registration = Registration(engine, IDENTITY, ["127.0.0.1:1", first_address])
            task = asyncio.create_task(registration.run())
            joined_first = await asyncio.wait_for(first.joins.get(), 60)
            await asyncio.wait_for(registration.joined.wait(), 60)  # and knows of the second
        second.known = first.known
        joined_second = await asyncio.wait_for(second.joins.get(), 60)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert joined_first.incarnation == joined_second.incarnation
    assert engine.lanes.totals().num_lanes_in_use == 1


async def test_another_router_behind_the_same_name_is_joined_before_it_gets_a_heartbeat(engine: Engine) -> None:
    """It may have another interval, a shorter lease, or another version."""
    first, second = Registry(), Registry()
    first.heartbeat_seconds = second.heartbeat_seconds = 3600.0
    async with _serving(first) as address:
        registration = Registration(engine, IDENTITY, [address])
        task = asyncio.create_task(registration.run())
        assert (await asyncio.wait_for(first.heartbeats.get(), 60)).number == 1
    second.known = first.known
    async with _serving(second, address):
        registration._beat_now.set()
        joined = await asyncio.wait_for(second.joins.get(), 60)
        assert (await asyncio.wait_for(second.heartbeats.get(), 60)).incarnation == joined.incarnation
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert {joined.incarnation} == first.known
    assert engine.lanes.totals().num_lanes_in_use == 1


async def test_a_worker_that_shuts_down_says_so_at_once_and_goes_on_saying_so(engine: Engine) -> None:
    registry = Registry()
    registry.heartbeat_seconds = 3600
    async with _serving(registry) as address:
        registration = Registration(engine, IDENTITY, [address])
        async with _running(registration):
            assert not (await _heartbeat(registry, complete=True)).draining
            await registration.announce_draining(10)
            assert (await _heartbeat(registry, complete=False)).draining
            registry.known.clear()
            registry.heartbeat_seconds = 0.02
            registration._beat_now.set()
            assert (await _heartbeat(registry, complete=True)).draining
            assert (await _heartbeat(registry, complete=False)).draining


async def test_a_router_that_does_not_answer_is_not_waited_for(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kakeya_worker.joining.registration._RETRY_SECONDS", 0.01)
    registry = Registry()
    async with _serving(registry) as address:
        registration = Registration(engine, IDENTITY, [address])
        async with _running(registration):
            await _heartbeat(registry, complete=True)
            assert not registration.cut_off.is_set()
            registry.heartbeat_refusal = InvalidField("lanes: too large", metadata={"field": "lanes"})
            await asyncio.wait_for(registration.cut_off.wait(), 60)
            await registration.announce_draining(0.01)
            registry.heartbeat_refusal = None
            assert (await _heartbeat(registry, complete=True)).draining
            while registration.cut_off.is_set():
                await _heartbeat(registry, complete=False)


async def test_another_contract_ends_the_worker(engine: Engine) -> None:
    registry = Registry()
    registry.contract_version = 9
    async with _serving(registry) as address:
        with pytest.raises(StartError, match="version 9"):
            await asyncio.wait_for(Registration(engine, IDENTITY, [address]).run(), 60)


async def test_a_router_of_the_contract_before_is_joined_without_features(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kakeya_worker.joining.registration.FEATURES", ("some-feature",))
    registry = Registry()
    registry.contract_version = CONTRACT_VERSION - 1
    async with _serving(registry) as address, _running(Registration(engine, IDENTITY, [address])):
        join = await asyncio.wait_for(registry.joins.get(), 60)
        assert (join.contract_version, list(join.features)) == (CONTRACT_VERSION - 1, [])
        await _heartbeat(registry, complete=True)
    registry.contract_version = CONTRACT_VERSION
    async with _serving(registry) as address, _running(Registration(engine, IDENTITY, [address])):
        join = await asyncio.wait_for(registry.joins.get(), 60)
        assert (join.contract_version, list(join.features)) == (CONTRACT_VERSION, ["some-feature", "grammar-library-1"])


async def test_leaving_without_a_router_is_not_an_error(engine: Engine) -> None:
    registry = Registry()
    async with _serving(registry) as address:
        registration = Registration(engine, IDENTITY, [address])
        await registration.leave()  # never joined: nothing to say
        async with _running(registration):
            await asyncio.wait_for(registry.joins.get(), 60)
            await asyncio.wait_for(registration.joined.wait(), 60)
    await registration.leave()
    assert registry.leaves.empty()


async def test_the_token_goes_with_every_call_and_is_read_anew(engine: Engine, tmp_path: Path) -> None:
    registry, file = Registry(), tmp_path / "token"
    registry.token = "kakeya_join_1_first"
    file.write_text("kakeya_join_1_first\n")
    async with _serving(registry) as address:
        registration = Registration(engine, IDENTITY, [address], RouterLink(token=JoinToken(file=file)))
        async with _running(registration):
            await _heartbeat(registry, complete=True)
            file.write_text("kakeya_join_2_second")
            registry.token = "kakeya_join_2_second"
            # A heartbeat that was on its way is refused, and the worker joins anew: it is never given up.
            while not registry.shown[-1].startswith("Heartbeat Bearer kakeya_join_2"):
                await asyncio.wait_for(registry.heartbeats.get(), 60)
        await registration.leave()
    assert registry.shown[0] == "Join Bearer kakeya_join_1_first"
    assert registry.shown[-1] == "Leave Bearer kakeya_join_2_second"
    assert engine.lanes.totals().num_lanes_in_use == 1


@pytest.mark.parametrize("refusal", [Unauthenticated("no good token"), PermissionDenied("not in pool demo")])
async def test_a_worker_that_was_never_let_in_ends_and_names_the_cure(engine: Engine, refusal: KakeyaError) -> None:
    registry = Registry()
    registry.token, registry.refusal = "good", refusal
    link = RouterLink(token=JoinToken(SecretStr("kakeya_join_1_wrong")))
    async with _serving(registry) as address:
        with pytest.raises(StartError, match=rf"{refusal.message}; .*`kakeya tokens create`.*--token-file") as caught:
            await asyncio.wait_for(Registration(engine, IDENTITY, [address], link).run(), 60)
    assert "wrong" not in str(caught.value)


async def test_a_token_that_is_revoked_in_service_is_said_and_the_worker_keeps_trying(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kakeya_worker.joining.registration._RETRY_SECONDS", 0.01)
    registry = Registry()
    link = RouterLink(token=JoinToken(SecretStr("t")))
    with structlog.testing.capture_logs() as logs:
        async with _serving(registry) as address, _running(Registration(engine, IDENTITY, [address], link)) as running:
            await _heartbeat(registry, complete=True)
            registry.token = "another"
            num_calls = len(registry.shown)
            while len(registry.shown) < num_calls + 5:
                await asyncio.sleep(0.01)
            registry.token = "t"
            while not registry.joins.empty():
                registry.joins.get_nowait()
            await asyncio.wait_for(registry.joins.get(), 60)
            assert not running.done()
    warnings = [line for line in logs if line["log_level"] == "warning"]
    assert ["any more" in line["event"] and "--token-file" in line["event"] for line in warnings] == [True]
    assert warnings[0]["reason"] == "UNAUTHENTICATED"


async def test_a_router_that_takes_joins_and_refuses_heartbeats_is_not_pestered(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kakeya_worker.joining.registration._RETRY_SECONDS", 3600.0)
    registry = Registry()
    registry.heartbeat_refusal = InvalidField("lanes: too large", metadata={"field": "lanes"})
    with structlog.testing.capture_logs() as logs:
        async with _serving(registry) as address, _running(Registration(engine, IDENTITY, [address])):
            await asyncio.wait_for(registry.joins.get(), 60)
            while not any(line.get("reason") == "INVALID_FIELD" for line in logs):
                await asyncio.sleep(0.01)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(registry.joins.get(), 0.3)


async def test_a_token_file_that_is_away_for_a_while_does_no_harm(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kakeya_worker.joining.registration._RETRY_SECONDS", 0.01)
    registry, file = Registry(), tmp_path / "token"
    file.write_text("t")
    link = RouterLink(token=JoinToken(file=file))
    async with _serving(registry) as address:
        registration = Registration(engine, IDENTITY, [address], link)
        with structlog.testing.capture_logs() as logs:
            async with _running(registration):
                await _heartbeat(registry, complete=True)
                file.unlink()
                while not any("No such file" in line.get("reason", "") for line in logs):
                    await asyncio.sleep(0.01)
                registry.joins.get_nowait()
                file.write_text("t")
                await asyncio.wait_for(registry.joins.get(), 60)
            file.unlink()
            await registration.leave()
        assert "could not deregister" in logs[-1]["event"]


@pytest.mark.parametrize("content", ["", " \n", "two words", "t\u00f6ken", "a\nb", "\x00"])
def test_what_is_no_token_is_not_sent_and_not_shown(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    for token in (JoinToken(file=file), JoinToken(SecretStr(content))):
        with pytest.raises(TokenError, match="holds no join token") as caught:
            token.metadata()
        assert not content.strip() or content not in str(caught.value)
    assert JoinToken().metadata() == ()


async def test_routers_are_reached_over_tls_with_a_certificate(engine: Engine, tmp_path: Path) -> None:
    authority, registry = Authority(tmp_path), Registry()
    server, client = authority.pair("router"), authority.pair("worker")
    tls = ClientTls(authority.path, client.cert, client.key)
    async with _serving(registry, tls_cert=server.cert, tls_key=server.key, tls_client_ca=authority.path) as address:
        async with _running(Registration(engine, IDENTITY, [address], RouterLink(tls))):
            await _heartbeat(registry, complete=True)
        with structlog.testing.capture_logs() as logs:
            async with _running(Registration(engine, IDENTITY, [address])):
                while not logs:
                    await asyncio.sleep(0.01)
    assert logs[0]["reason"].startswith("UNAVAILABLE: ")
    assert registry.leaves.empty()


async def test_heartbeats_are_numbered_and_the_last_answered_one_is_shown(engine: Engine) -> None:
    registry, metrics = Registry(), WorkerMetrics(Meters())
    async with _serving(registry) as address:
        registration = Registration(engine, IDENTITY, [address], metrics=metrics)
        metrics.meters.before_reading(HeartbeatGauges(metrics.meters).refresher(lambda: registration.last_heartbeat))
        assert _seen(metrics).value("kakeya_worker_heartbeat_number") == 0
        async with _running(registration):
            first, second = [await asyncio.wait_for(registry.heartbeats.get(), 60) for _ in range(2)]
            assert (first.number, second.number) == (1, 2)
            append = Append("s", 1, 0, (1, 2, 3))
            engine.submit(append)
            await asyncio.wrap_future(append.future)
            while not (said := await asyncio.wait_for(registry.heartbeats.get(), 60)).kv_live_bytes:
                pass
            while (seen := _seen(metrics)).value("kakeya_worker_heartbeat_number") < said.number:
                await asyncio.sleep(0.01)
            assert seen.value("kakeya_worker_heartbeat_kv_live_bytes") == said.kv_live_bytes
            registry.known.clear()  # the lease is lost, and the next incarnation counts anew
            while (lost := await asyncio.wait_for(registry.heartbeats.get(), 60)).incarnation == said.incarnation:
                pass
    assert lost.number == 1
    seen = _seen(metrics)
    assert seen.value("kakeya_worker_lost_leases_total") == 1
    assert seen.value("kakeya_worker_heartbeat_seconds_count", outcome="answered") >= said.number
    assert (
        seen.value("kakeya_worker_heartbeat_seconds_count", outcome="failed") >= 1
    )  # and one that the end has cut off


def _seen(metrics: WorkerMetrics) -> Exposition:
    return Exposition.of(metrics.meters.exposition()[0].decode())
