"""ListModels: what a client may ask for before it opens a session."""

import pytest

from kakeya_shared.errors.tree import Unauthenticated
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.fake_worker import BYTES_PER_TOKEN, SINK, TOKENIZER_DIGEST, VOCAB_SIZE, WINDOW
from tests.unit.router.keyed import Keyed
from tests.unit.router.stack import Client, Stack, answer


async def models(client: Client) -> list[api.Model]:
    return list((await answer(client.runtime.ListModels(api.ListModelsRequest()))).models)


def tiny(name: str, *, is_default: bool) -> api.Model:
    return api.Model(
        name=name,
        lane_token_count=SINK + WINDOW,
        vocab_size=VOCAB_SIZE,
        is_default=is_default,
        tokenizer_digest=TOKENIZER_DIGEST,
        sink=SINK,
        window=WINDOW,
        kv_bytes_per_token=BYTES_PER_TOKEN,
        features=["turn-search"],
    )


async def test_none_is_served_before_a_worker_joins(client: Client) -> None:
    assert await models(client) == []


async def test_the_only_one_is_the_default_however_many_serve_it(client: Client, stack: Stack) -> None:
    await stack.worker(client, "worker-a")
    await stack.worker(client, "worker-b")
    assert await models(client) == [tiny("Tiny", is_default=True)]


async def test_of_several_none_is_the_default_unless_the_router_was_told(client: Client, stack: Stack) -> None:
    await stack.worker(client, "worker-a", model="Zwei", pool="zwei")
    await stack.worker(client, "worker-b", model="Eins", pool="eins")
    assert await models(client) == [tiny("Eins", is_default=False), tiny("Zwei", is_default=False)]
    told = await stack.router(default_model="Zwei")
    assert await models(told) == [tiny("Eins", is_default=False), tiny("Zwei", is_default=True)]


async def test_the_largest_lane_counts(client: Client, stack: Stack) -> None:
    await stack.worker(client, "worker-a", window=WINDOW - 3)
    await stack.worker(client, "worker-b", window=WINDOW)
    (served,) = await models(client)
    assert (served.lane_token_count, served.sink, served.window) == (SINK + WINDOW, SINK, WINDOW)


async def test_a_worker_may_claim_any_window(client: Client, stack: Stack) -> None:
    await stack.worker(client, window=2**32 - 1)
    (served,) = await models(client)
    assert served.lane_token_count == SINK + 2**32 - 1


@pytest.mark.parametrize("other", ["e" * 64, ""])
async def test_workers_that_disagree_have_no_tokenizer_in_common(client: Client, stack: Stack, other: str) -> None:
    await stack.worker(client, "worker-a")
    await stack.worker(client, "worker-b", tokenizer_digest=other)
    await stack.worker(client, "worker-c", model="Another", pool="another", tokenizer_digest="a" * 64)
    assert [(served.name, served.tokenizer_digest) for served in await models(client)] == [
        ("Another", "a" * 64),
        ("Tiny", ""),
    ]


async def test_a_worker_that_an_older_router_let_in_says_nothing_of_its_tokenizer(client: Client, stack: Stack) -> None:
    await stack.worker(client, "worker-a")
    assert await stack.redis.hdel("kakeya:{tiny}:worker:worker-a", "tokenizer_digest") == 1
    (served,) = await models(await stack.router())
    assert served.tokenizer_digest == ""
    assert (await client.workers())["worker-a"].tokenizer_digest == ""


async def test_a_key_is_asked_for_and_every_tenant_sees_all(keyed: Keyed) -> None:
    await keyed.worker()
    with pytest.raises(Unauthenticated):
        await models(keyed.nobody)
    seen = [await models(await keyed.tenant(tenant)) for tenant in ("acme", "zeta")]
    assert seen == [[tiny("Tiny", is_default=True)]] * 2
