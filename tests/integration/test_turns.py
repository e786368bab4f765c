"""A Turn that is broken off, left or bereaved at each message of its answer: the tokens of single calls, nothing twice,
nothing left.
"""

import asyncio
import dataclasses
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kakeya
from tests.integration.leftovers import Pool, leftovers
from tests.integration.message_proxy import Cut, MessageProxy, at, hold, message_proxy
from tests.integration.processes import SINK, WINDOW, Runtime, runtime, wait_until

pytestmark = pytest.mark.heavy

POOL = "demo"  # as the model's directory
NUM_TOKENS = 6
PROMPT = list(range(SINK + WINDOW + 20))  # longer than what is kept, so that `truncated` is among the messages
OPTIONS: dict[str, Any] = {"max_tokens": NUM_TOKENS, "temperature": 1.0, "seed": 11, "logprobs": 1}
MESSAGES = ["session", "appended", "truncated", *(f"token {number}" for number in range(NUM_TOKENS)), "done", "end"]
EVERY_POINT = bool(os.environ.get("KAKEYA_TEST_EVERY_POINT"))
"""Processes die at each message, which takes minutes; else at some."""
FLAGS = ("--heartbeat-interval-seconds=0.3", "--reap-interval-seconds=0.2", "--recovery-seconds=0.1")
Begin = Callable[..., Awaitable[kakeya.AsyncGeneration]]


@pytest.fixture(scope="module")
def made(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """Two routers, two workers with one snapshot store, which know both from their start."""
    directory = tmp_path_factory.mktemp("turns")
    environment = {"KAKEYA_WORKER_SNAPSHOTS": str(directory / "snapshots")}
    with runtime(model, directory, num_workers=0, router_flags=FLAGS, environment=environment) as made:
        made.start_router(*FLAGS)
        for _ in range(2):
            made.start_worker()
        made.wait_for_workers(2)
        yield made


@pytest.fixture
async def proxy(made: Runtime) -> AsyncIterator[MessageProxy]:
    async with message_proxy(made.address) as proxy:
        yield proxy


@pytest.fixture
async def client(proxy: MessageProxy) -> AsyncIterator[kakeya.AsyncClient]:
    async with kakeya.AsyncClient(proxy.address, max_attempts=12) as client:
        yield client


@pytest.fixture
async def expected(made: Runtime) -> "Heard":
    """By single calls, which nothing disturbs."""
    async with kakeya.AsyncClient(made.address) as client, await client.create_session() as session:
        appended = await session.append(PROMPT)
        generation = session.generate(**OPTIONS)
        return Heard.of(appended, generation, await generation.all())


@dataclasses.dataclass(frozen=True)
class Heard:
    """What a client has heard of a turn, but for times and names."""

    token_ids: list[int]
    details: list[kakeya.TokenDetail]
    truncated: kakeya.Truncation | None
    appended: dict[str, Any]
    done: dict[str, Any]

    @classmethod
    def of(
        cls, appended: kakeya.AppendResult | None, generation: kakeya.AsyncGeneration, token_ids: list[int]
    ) -> "Heard":
        assert appended is not None
        assert generation.done is not None
        done = dataclasses.asdict(generation.done)
        for name in ("op_id", "prefill_seconds", "total_seconds"):
            del done[name]
        said = dataclasses.asdict(appended)
        for name in ("prefill_seconds", "num_evicted_tokens"):  # none, where an earlier attempt has appended
            del said[name]
        return cls(token_ids, list(generation.details), generation.truncated, said, done)

    def check(self, expected: "Heard") -> None:
        assert self.token_ids == expected.token_ids
        assert (self.truncated, self.appended, self.done) == (expected.truncated, expected.appended, expected.done)
        for detail, due in zip(self.details, expected.details, strict=True):
            assert detail.logprob is None or detail == due  # that of one which was on its way is nowhere


async def in_a_session(client: kakeya.AsyncClient, **more: Any) -> kakeya.AsyncGeneration:
    return (await client.create_session()).turn(PROMPT, **OPTIONS, **more)


async def in_a_new_session(client: kakeya.AsyncClient, **more: Any) -> kakeya.AsyncGeneration:
    return client.turn(PROMPT, ephemeral=False, **OPTIONS, **more)


async def for_one_answer(client: kakeya.AsyncClient, **more: Any) -> kakeya.AsyncGeneration:
    return client.turn(PROMPT, **OPTIONS, **more)


async def hear(made: Runtime, client: kakeya.AsyncClient, begin: Begin, expected: Heard) -> None:
    """All of the turn; and its session is the only one, goes on, and leaves nothing."""
    generation = await begin(client)
    token_ids = await generation.all()
    Heard.of(generation.appended, generation, token_ids).check(expected)
    assert generation.session is not None
    if not generation.session.ephemeral:
        info = await generation.session.info()
        assert info.history_length == generation.session.history_length == len(PROMPT) + NUM_TOKENS
        assert len(await generation.session.turn([1, 2], max_tokens=2).all()) == 2
        await generation.session.close()
    await nothing_left(made)


async def nothing_left(made: Runtime) -> None:
    def found() -> list[str]:
        return leftovers(made, Pool(POOL))

    await asyncio.to_thread(wait_until, lambda: not found(), "nothing is left")


def dies_at(*some: str) -> pytest.MarkDecorator:
    points = MESSAGES if EVERY_POINT else some
    return pytest.mark.parametrize("number", [*map(MESSAGES.index, points)], ids=points)


def each_message(*begin: Begin, but: str = "") -> pytest.MarkDecorator:
    cases = [(each, number) for each in begin for number, name in enumerate(MESSAGES) if name != but]
    ids = [f"{each.__name__}-{MESSAGES[number]}" for each, number in cases]
    return pytest.mark.parametrize(("begin", "number"), cases, ids=ids)


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "untold"])
@each_message(in_a_session, in_a_new_session)
async def test_a_connection_breaks(
    made: Runtime,
    proxy: MessageProxy,
    client: kakeya.AsyncClient,
    expected: Heard,
    begin: Begin,
    number: int,
    is_told: bool,
) -> None:
    async def cut() -> None:
        raise Cut(is_told=is_told)

    proxy.between = at(number, cut)
    await hear(made, client, begin, expected)
    again = {"session": "Turn", "appended": "Turn", "end": None}.get(MESSAGES[number], "Generate")
    turns = [call for call in proxy.calls if call in ("Turn", "Generate")]
    assert turns == [each for each in ("Turn", again, "Turn") if each], "the last is of the turn that goes on"


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "untold"])
@each_message(for_one_answer)
async def test_a_connection_breaks_of_one_answer(
    made: Runtime,
    proxy: MessageProxy,
    client: kakeya.AsyncClient,
    expected: Heard,
    begin: Begin,
    number: int,
    is_told: bool,
) -> None:
    async def cut() -> None:
        raise Cut(is_told=is_told)

    proxy.between = at(number, cut)
    if number in (0, len(MESSAGES) - 1):  # the same Turn is sent again; nothing is missing
        await hear(made, client, begin, expected)
    else:
        await hear_if_not_closed(made, client, begin, expected)


async def hear_if_not_closed(made: Runtime, client: kakeya.AsyncClient, begin: Begin, expected: Heard) -> None:
    """As `hear`; but a session for one answer is closed with a broken stream, and with its own end, of which a client
    that was cut off is not told.
    """
    try:
        await hear(made, client, begin, expected)
    except kakeya.SessionNotFound:
        await nothing_left(made)


@each_message(in_a_session, in_a_new_session, for_one_answer)
async def test_a_client_leaves(
    made: Runtime, proxy: MessageProxy, client: kakeya.AsyncClient, begin: Begin, number: int
) -> None:
    held = asyncio.Event()

    async def until_it_leaves() -> None:
        held.set()
        await hold()

    proxy.between = at(number, until_it_leaves)
    generation = await begin(client)
    hearing = asyncio.create_task(generation.all())
    await held.wait()
    hearing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hearing
    await left(made, client, generation)


@each_message(in_a_session, in_a_new_session, for_one_answer, but="end")
async def test_a_deadline_passes(
    made: Runtime, proxy: MessageProxy, client: kakeya.AsyncClient, begin: Begin, number: int
) -> None:
    proxy.between = at(number, hold)
    generation = await begin(client, timeout_seconds=1.0)
    with pytest.raises(kakeya.DeadlineExceeded):
        await generation.all()
    await left(made, client, generation)


async def left(made: Runtime, client: kakeya.AsyncClient, generation: kakeya.AsyncGeneration) -> None:
    """After a client has left: its session goes on where it is not for one answer, and leaves nothing."""
    session = generation.session
    if session is not None and not session.ephemeral:
        try:
            assert len(await session.turn([1, 2], max_tokens=2).all()) == 2
        except (kakeya.SessionNotFound, kakeya.SessionClosed):
            assert generation.appended is None, "nothing was appended to it that its client knows of: it is closed"
        await session.close()
    await nothing_left(made)


@dies_at("session", "appended", "token 0", "token 3", "done")
@pytest.mark.parametrize("begin", [in_a_session, in_a_new_session, for_one_answer])
async def test_a_router_dies(
    made: Runtime, proxy: MessageProxy, client: kakeya.AsyncClient, expected: Heard, begin: Begin, number: int
) -> None:
    victim = next(router for router in made.routers if router.address == proxy.router)

    async def kill() -> None:
        made.routers.remove(victim)
        await asyncio.to_thread(victim.kill)
        proxy.router = made.address
        raise Cut

    proxy.between = at(number, kill)
    await (hear_if_not_closed if begin is for_one_answer else hear)(made, client, begin, expected)
    # Where it was: of another address a worker learns with a heartbeat, and the other router may die before that.
    await asyncio.to_thread(made.start_router, *FLAGS, address=victim.address)


@dies_at("session", "appended", "token 0", "token 3")
@pytest.mark.parametrize("begin", [in_a_session, in_a_new_session])
async def test_a_worker_dies(
    made: Runtime, proxy: MessageProxy, client: kakeya.AsyncClient, expected: Heard, begin: Begin, number: int
) -> None:
    async def kill() -> None:
        async with kakeya.AsyncClient(made.address) as other:
            (session,) = [each.id async for each in other.list_sessions()]
            worker_id = (await other.session(session).info()).worker
        victim = next(each for each in made.workers if worker_id.endswith(each.address.split(":")[1]))
        made.workers.remove(victim)
        await asyncio.to_thread(victim.kill)
        made.lapse(victim)

    proxy.between = at(number, kill)
    await hear(made, client, begin, expected)
    await asyncio.to_thread(made.start_worker)
    await asyncio.to_thread(made.wait_for_workers, 2)
