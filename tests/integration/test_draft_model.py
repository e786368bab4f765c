"""A draft model through the whole runtime: the same tokens, in sessions that are lost, moved, parked, forked, rewound.

The model is kakeya-nano with a pause in each step; kakeya-nano without pauses drafts for it.
"""

import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

import kakeya
from kakeya_shared import installed_models
from tests.integration import paused_verifier
from tests.integration.processes import Runtime, runtime
from tests.integration.test_recovery import ROUTER_FLAGS, Disturbance
from tests.scrape import scrape

_OPTIONS: dict[str, Any] = {"temperature": 0.7, "seed": 3, "max_tokens": 100}
Then = Callable[[kakeya.AsyncSession], Awaitable[object]]


@pytest.fixture(scope="module")
def drafting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    tmp_path = tmp_path_factory.mktemp("drafting")
    nano = installed_models.directory("kakeya-nano")
    model = shutil.copytree(nano, tmp_path / "model")
    paused_verifier.install(tmp_path / "plugins")
    environment = {
        "KAKEYA_WORKER_BACKEND": paused_verifier.BACKEND,
        "KAKEYA_WORKER_SNAPSHOTS": str(tmp_path / "snapshots"),
        "KAKEYA_WORKER_SHUTDOWN_GRACE_SECONDS": "0.2",
        "KAKEYA_WORKER_SPECULATION": "draft-model",
        "KAKEYA_WORKER_DRAFT_MODEL": "kakeya-nano",
    }
    with runtime(
        model, tmp_path, router_flags=ROUTER_FLAGS, environment=environment, plugins=tmp_path / "plugins"
    ) as made:
        yield made


@pytest.fixture
async def client(drafting: Runtime) -> AsyncIterator[kakeya.AsyncClient]:
    async with kakeya.AsyncClient(drafting.address) as client:
        yield client


async def _answer(session: kakeya.AsyncSession, then: Then | None = None) -> tuple[list[int], int]:
    """And how many drafts were right; `then` is done after its 20th token."""
    token_ids = []
    async with session.generate(**_OPTIONS) as generation:
        async for token_id in generation:
            token_ids.append(token_id)
            if then is not None and len(token_ids) == 20:
                await then(session)
    assert generation.done is not None
    return token_ids, generation.done.num_accepted_tokens


async def _nothing(session: kakeya.AsyncSession) -> None:
    """Nothing happens."""


async def _converse(session: kakeya.AsyncSession, then: Then) -> tuple[list[list[int]], list[int]]:
    """Three answers, something in the second one, and how many drafts were right in each."""
    found = []
    for turn in range(3):
        await session.append(range(100 + 40 * turn, 140 + 40 * turn))
        found.append(await _answer(session, then if turn == 1 else None))
    return [token_ids for token_ids, _ in found], [accepted for _, accepted in found]


async def _undisturbed(client: kakeya.AsyncClient) -> list[list[int]]:
    async with await client.create_session(speculation="none") as session:
        token_ids, accepted = await _converse(session, _nothing)
    assert accepted == [0, 0, 0]
    assert len({token_id for answer in token_ids for token_id in answer}) > 30
    return token_ids


async def test_it_is_parked_forked_and_rewound(drafting: Runtime, client: kakeya.AsyncClient) -> None:
    expected = await _undisturbed(client)
    async with await client.create_session() as session:
        token_ids, accepted = await _converse(session, _nothing)
        assert token_ids == expected
        await session.park()
        last = (await session.info()).history_length - len(expected[-1])
        await session.rewind(last)
        assert (await _answer(session))[0] == expected[-1]
        async with await client.create_session(fork_from=session, boundary=last) as fork:
            of_fork, accepted_of_fork = await _answer(fork)
        assert of_fork == expected[-1]
        reserved = (await session.info()).reserved_bytes
    assert min(accepted) > 0
    assert accepted_of_fork > 0
    shown = [scrape(worker.metrics) for worker in drafting.workers]
    assert sum(each.value("kakeya_worker_draft_seconds_total") for each in shown) > 0.0
    assert sum(each.value("kakeya_worker_accepted_tokens_total") for each in shown) > sum(accepted)
    assert f'"lane_bytes": {reserved}' in drafting.workers[0].log.read_text()


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.heavy)], ids=["SIGKILL", "SIGTERM"]
)
async def test_a_worker_is_lost_or_drained(
    drafting: Runtime, client: kakeya.AsyncClient, number: signal.Signals
) -> None:
    expected, disturb = await _undisturbed(client), Disturbance(drafting, number)
    async with await client.create_session() as session:
        token_ids, accepted = await _converse(session, disturb)
        assert token_ids == expected
        assert (await session.info()).epoch > 1
    assert accepted[0] > 0
    assert accepted[2] > 0, "the next worker's draft model goes on from what the lane keeps"
    drafting.start_worker()
