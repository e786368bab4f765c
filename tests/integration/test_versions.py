"""Routers and workers of the first wave's last commit against today's, in both directions: nothing is lost on the way
from one to the other, and what an older one would drop in silence is refused by name.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

import kakeya
from kakeya_shared.contract.features import GRAMMAR, MASKED_ENDS
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.v1 import runtime_pb2_grpc
from kakeya_worker.joining.worker_identity import FEATURES
from tests.integration import older_version
from tests.integration.older_version import NoCommit, OlderVersion
from tests.integration.processes import Process, Runtime, eventually
from tests.integration.test_recovery import ROUTER_FLAGS
from tests.redis_server import RedisServer, redis_server
from tests.unit.router.stack import turn_request

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]

COMMIT = "95cc93b1443e6c9c89ba8ad4fb37c5a6169b231b"
NUM_TOKENS = 200
OPTIONS: dict[str, Any] = {"temperature": 1.0, "seed": 11, "frequency_penalty": 0.5}


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> OlderVersion:
    try:
        return older_version.extracted(COMMIT, tmp_path_factory.mktemp("older"))
    except NoCommit as error:
        pytest.skip(f"a clone without its history: {error}")


@dataclass
class Versions:
    """Both on one Redis, with one snapshot store."""

    older: Runtime
    here: Runtime

    def of(self, name: str) -> Runtime:
        return self.older if name == "older" else self.here

    def start_worker(self, name: str, router: Process) -> Process:
        """Of a version, which joins this router alone."""
        runtime = self.of(name)
        routers, runtime.routers = runtime.routers, [router]
        try:
            return runtime.start_worker("--weights", "float32")
        finally:
            runtime.routers = routers


@pytest.fixture
def versions(older: OlderVersion, model: Path, tmp_path: Path) -> Iterator[Versions]:
    with redis_server() as redis:
        made = Versions(
            _runtime(redis, model, tmp_path, "older", older.environment),
            _runtime(redis, model, tmp_path, "here", {}),
        )
        try:
            yield made
        finally:
            made.older.stop()
            made.here.stop()


def _runtime(redis: RedisServer, model: Path, directory: Path, name: str, environment: dict[str, str]) -> Runtime:
    logs = directory / name
    logs.mkdir()
    return Runtime(redis, model, logs, {"KAKEYA_WORKER_SNAPSHOTS": str(directory / "snapshots"), **environment})


@asynccontextmanager
async def calling(router: Process) -> AsyncIterator[tuple[kakeya.AsyncClient, Any]]:
    """A client, and a stub for what that does not ask for yet."""
    async with (
        kakeya.AsyncClient(router.address) as client,
        grpc.aio.insecure_channel(router.address) as channel,
    ):
        yield client, runtime_pb2_grpc.RuntimeServiceStub(channel)


async def converse(session: kakeya.AsyncSession, disturb: Callable[[], object] = lambda: None) -> list[int]:
    """Two turns; the second is disturbed after its 40th token."""
    token_ids: list[int] = []
    for turn in range(2):
        await session.append(range(turn * 50, turn * 50 + 50))
        number = 0
        async with session.generate(max_tokens=NUM_TOKENS, **OPTIONS) as generation:
            async for token_id in generation:
                token_ids.append(token_id)
                number += 1
                if (turn, number) == (1, 40):
                    await asyncio.to_thread(disturb)
    return token_ids


def worker_of(versions: Versions, worker_id: str) -> Process:
    workers = [*versions.older.workers, *versions.here.workers]
    return next(each for each in workers if worker_id.endswith(each.address.split(":")[1]))


def masked(session_id: str) -> api.GenerateRequest:
    return api.GenerateRequest(session_id=session_id, max_tokens=2, ignore_eos=True)


@contextmanager
def refused_by_name(feature: str = MASKED_ENDS) -> Iterator[None]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        yield
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert feature in (raised.value.details() or "")


async def served_or_refused(stub: Any, session_id: str, features: tuple[str, ...]) -> None:
    if MASKED_ENDS not in features:
        with refused_by_name():
            [_ async for _ in stub.Generate(masked(session_id))]
        return
    *_, done = [each async for each in stub.Generate(masked(session_id))]
    assert done.done.generated_token_count == 2


@pytest.mark.parametrize(("router_of", "workers_of"), [("here", "older"), ("older", "here")])
async def test_a_conversation_a_recovery_and_a_feature(versions: Versions, router_of: str, workers_of: str) -> None:
    router = versions.of(router_of).start_router(*ROUTER_FLAGS)
    for _ in range(2):
        versions.start_worker(workers_of, router)
    await asyncio.to_thread(versions.of(router_of).wait_for_workers, 2)
    async with calling(router) as (client, stub):
        async with await client.create_session() as undisturbed:
            expected = await converse(undisturbed)
        assert len(set(expected)) > 50
        session = await client.create_session()
        worker_id = (await session.info()).worker
        assert await converse(session, worker_of(versions, worker_id).kill) == expected
        assert (await session.info()).worker != worker_id
        if router_of == "here":
            with refused_by_name():
                [_ async for _ in stub.Generate(masked(session.id))]
            with refused_by_name():
                [_ async for _ in stub.Turn(turn_request(session.id, [1], ignore_eos=True))]
            with refused_by_name(GRAMMAR):
                [_ async for _ in stub.Turn(turn_request(session.id, [1], grammar=api.Grammar(regex="a")))]
            assert (await session.info()).history_length == 2 * (50 + NUM_TOKENS)
            assert [each async for each in stub.Turn(turn_request(session.id, [1]))][-1].generated.HasField("done")
        else:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                [_ async for _ in stub.Turn(turn_request(session.id, [1]))]
            assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
        await session.close()


@pytest.mark.parametrize("first", ["older", "here"])
async def test_routers_of_both_go_on_with_what_the_other_has_left(versions: Versions, first: str) -> None:
    other = "here" if first == "older" else "older"
    routers = {name: versions.of(name).start_router(*ROUTER_FLAGS) for name in (first, other)}
    versions.start_worker(first, routers[first])
    versions.start_worker(other, routers[other])
    await asyncio.to_thread(versions.here.wait_for_workers, 2)
    async with calling(routers[first]) as (_, stub), calling(routers[other]) as (client, _):
        async with await client.create_session() as undisturbed:
            expected = await converse(undisturbed)
        if first == "older":
            async with kakeya.AsyncClient(f"ipv4:{routers[first].address},{routers[other].address}") as both:
                session = await both.create_session()
                assert await converse(session, routers[first].kill) == expected
            return
        session = await client.create_session()
        seen = await session.turn(range(50), max_tokens=NUM_TOKENS, **OPTIONS).all()
        request = turn_request(session.id, range(50, 100), NUM_TOKENS, op_id="turn", **OPTIONS)
        async for event in stub.Turn(request):
            if event.generated.HasField("token_id"):
                seen.append(event.generated.token_id)
                if len(seen) == NUM_TOKENS + 40:
                    routers[first].kill()
                    break
    async with grpc.aio.insecure_channel(routers[other].address) as channel:
        stub = runtime_pb2_grpc.RuntimeServiceStub(channel)
        resumed = api.GenerateRequest(
            session_id=session.id,
            max_tokens=NUM_TOKENS,
            op_id="turn",
            resume_token_ids=seen[NUM_TOKENS:],
            **OPTIONS,
        )
        seen += [each.token_id async for each in stub.Generate(resumed) if each.HasField("token_id")]
    assert seen == expected


async def test_a_worker_says_what_it_can_once_its_router_is_of_today(versions: Versions) -> None:
    older, here = versions.older.start_router(*ROUTER_FLAGS), versions.here.start_router(*ROUTER_FLAGS)
    versions.start_worker("here", older)
    await asyncio.to_thread(versions.here.wait_for_workers, 1)
    async with calling(here) as (client, stub):
        session = await client.create_session()
        await session.append([1, 2, 3])
        with refused_by_name():
            [_ async for _ in stub.Generate(masked(session.id))]
        (status,) = versions.here.list_workers()
        assert list(status.features) == []
        older.kill()  # the worker joins the other one

        async def has_joined() -> bool:
            return sorted(versions.here.list_workers()[0].features) == sorted(FEATURES)

        await eventually(has_joined, "the worker names its features")
        await served_or_refused(stub, session.id, FEATURES)
        await session.close()
