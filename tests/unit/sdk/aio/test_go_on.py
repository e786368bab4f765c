"""Generations that another process goes on with."""

import threading

import pytest

from kakeya import AsyncClient, Cancelled, HistoryLengthMismatch, InvalidRequest
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails


async def test_all_of_it_comes_from_the_first_token_on(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    runtime.hold_after = 2
    generation = client.turn([1, 2], max_tokens=5, ephemeral=False, seed=7)
    assert generation.resumption == b""
    assert [await generation.next_token(), await generation.next_token()] == [3, 4]
    resumption = generation.resumption
    generation.cancel()
    runtime.hold_after = None
    again = client.go_on(resumption, 2)
    assert await again.all() == [3, 4, 5, 6, 7]
    assert again.session is not None
    assert again.session.history_length == 7
    assert again.op_id == generation.op_id
    assert runtime.requests["Generate"][-1].seed == 7
    assert await client.go_on(resumption, 2).all() == [3, 4, 5, 6, 7]  # it has come to its end


async def test_only_the_latest_operation_is_gone_on_with(client: AsyncClient) -> None:
    generation = client.turn([1, 2], max_tokens=2, ephemeral=False)
    await generation.all()
    assert generation.session is not None
    await generation.session.turn([9], max_tokens=1).all()
    with pytest.raises(HistoryLengthMismatch):
        await client.go_on(generation.resumption, 2).all()


async def test_what_is_none_is_refused(client: AsyncClient) -> None:
    with pytest.raises(InvalidRequest):
        client.go_on(b"\xff", 1)


async def test_one_that_has_broken_off_asks_before_it_goes_on(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    asked = threading.Event()

    async def taken() -> None:
        asked.set()
        raise Cancelled("another process has it")

    runtime.after["Generate"].append(fails("OPERATION_STOPPED"))
    generation = client.turn([1, 2], max_tokens=2, ephemeral=False)
    generation.before_going_on = taken
    with pytest.raises(Cancelled, match="another process"):
        await generation.all()
    assert asked.is_set()
    assert runtime.calls == ["Turn"]
