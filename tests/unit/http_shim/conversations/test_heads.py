"""A head that is long enough is prefilled once; conversations that begin with it branch off from there."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from kakeya_stubs.v1 import runtime_pb2 as pb
from tests.unit.http_shim.shim import Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.http_shim.talk import Talk
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, ScriptedSession, fails

SYSTEM = {"role": "system", "content": "You are kind to everybody who comes."}
HEAD = "<|im_start|>system\nYou are kind to everybody who comes.<|im_end|>\n"


@pytest.fixture
async def heads(runtime: ScriptedRuntime, tokenizer_dir: Path) -> AsyncIterator[Shim]:
    """A shim that shares heads of 20 tokens or more, which fit a lane."""
    runtime.models[0].lane_token_count = 1000
    async with serving_shim(runtime, tokenizer_dir, "--live-sessions", "on", "--shared-head-tokens", "20") as shim:
        yield shim


async def test_it_is_prefilled_once(heads: Shim) -> None:
    num_head = len(heads.tokens(HEAD))
    first = Talk(heads, [SYSTEM])
    told = await first.says("Hello")
    assert told.short == ("new", "first-turn")
    assert told.reused == 0, "it has prefilled the head itself"
    assert first.history(told) == first.written()
    made, _ = heads.runtime.requests["CreateSession"]
    assert (made.head, made.pin, made.disposable) == (True, num_head, True)
    await asyncio.to_thread(heads.runtime.wait_for, lambda: len(heads.runtime.requests["ParkSession"]) == 1)
    for text in ("One", "Two"):
        other = Talk(heads, [SYSTEM])
        told = await other.says(text)
        assert told.short == ("forked", "head")
        assert told.reused == num_head
        assert other.history(told) == other.written()
        assert (await other.says("And?")).short == ("continued", "next-turn")
    assert sum(request.head for request in heads.runtime.requests["CreateSession"]) == 1


async def test_several_at_once_prefill_it_once(heads: Shim) -> None:
    told = await asyncio.gather(*(Talk(heads, [SYSTEM]).says(f"Hello {number}") for number in range(5)))
    assert sorted(each.short for each in told) == [("forked", "head")] * 4 + [("new", "first-turn")]
    assert sum(request.head for request in heads.runtime.requests["CreateSession"]) == 1


@pytest.mark.parametrize("reason", ["OPERATION_RUNNING", "HISTORY_LENGTH_MISMATCH"])
async def test_another_server_is_about_to_prefill_it(heads: Shim, reason: str) -> None:
    for _ in range(2):
        heads.runtime.before["AppendTokens"].append(fails(reason))
    told = await Talk(heads, [SYSTEM]).says("Hello")
    assert told.short == ("new", "first-turn"), "it goes on with what the other has left"
    assert (await Talk(heads, [SYSTEM]).says("Another")).short == ("forked", "head")
    assert sum(request.head for request in heads.runtime.requests["CreateSession"]) == 1


async def test_another_server_has_prefilled_it_meanwhile(heads: Shim) -> None:
    heads.runtime.after["AppendTokens"].append(fails("OPERATION_RUNNING"))  # what is appended is as good as another's
    talk = Talk(heads, [SYSTEM])
    told = await talk.says("Hello")
    assert (told.short, told.reused) == (("forked", "head"), len(heads.tokens(HEAD)))
    assert talk.history(told) == talk.written()


async def test_another_server_names_it_meanwhile(heads: Shim) -> None:
    """In a session of its own, as where this one's request is forgotten."""
    runtime, token_ids = heads.runtime, heads.tokens(HEAD)
    runtime.sessions["counter.other"] = ScriptedSession(history=token_ids)

    def another_names_it(context: grpc.ServicerContext) -> None:
        tag = runtime.requests["FindSession"][0].tags[-1]
        place = pb.HistoryPlace(kind=pb.PLACE_KIND_HEAD, history_length=len(token_ids))
        runtime.tagged.append((tag, pb.TagTurnRequest(session_id="counter.other", place=place)))
        fails("OPERATION_RUNNING")(context)

    runtime.before["AppendTokens"].append(another_names_it)
    talk = Talk(heads, [SYSTEM])
    told = await talk.says("Hello")
    assert (told.short, told.reused) == (("forked", "head"), len(token_ids))
    assert talk.history(told) == talk.written()


async def test_a_search_for_it_that_fails(heads: Shim) -> None:
    heads.runtime.before["FindSession"].append(fails("INTERNAL"))
    talk = Talk(heads, [SYSTEM])
    told = await talk.says("Hello", headers={"kakeya-session": "new"})
    assert (told.short, told.reused) == (("new", "asked"), 0)
    assert talk.history(told) == talk.written()


async def test_another_server_that_takes_too_long(heads: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kakeya_http_shim.conversations.heads._OTHERS_SECONDS", -1.0)
    heads.runtime.before["AppendTokens"].append(fails("OPERATION_RUNNING"))
    talk = Talk(heads, [SYSTEM])
    told = await talk.says("Hello")
    assert told.short == ("new", "first-turn")
    assert talk.history(told) == talk.written()


async def test_a_shorter_one_is_not_shared(heads: Shim) -> None:
    talk = Talk(heads, [{"role": "system", "content": "a"}])
    assert (await talk.says("Hello")).short == ("new", "first-turn")
    assert len(heads.runtime.sessions) == 1


@pytest.mark.parametrize("method", ["CreateSession", "AppendTokens", "TagTurn"])
async def test_where_it_cannot_be_shared(heads: Shim, method: str) -> None:
    heads.runtime.before[method].append(fails("INVALID_FIELD"))
    talk = Talk(heads, [SYSTEM])
    told = await talk.says("Hello")
    assert told.short == ("new", "first-turn")
    assert talk.history(told) == talk.written()


async def test_where_it_is_gone(heads: Shim) -> None:
    await Talk(heads, [SYSTEM]).says("Hello")
    heads.runtime.before["CreateSession"].append(fails("SESSION_NOT_FOUND"))
    talk = Talk(heads, [SYSTEM])
    told = await talk.says("Another")
    assert told.short == ("new", "gone")
    assert talk.history(told) == talk.written()


@pytest.mark.parametrize(("num_times", "way"), [(3, ("forked", "head")), (4, ("new", "busy"))])
async def test_where_it_is_busy(heads: Shim, num_times: int, way: tuple[str, str]) -> None:
    await Talk(heads, [SYSTEM]).says("Hello")
    for _ in range(num_times):
        heads.runtime.before["CreateSession"].append(fails("OPERATION_RUNNING"))
    talk = Talk(heads, [SYSTEM])
    told = await talk.says("Another")
    assert told.short == way
    assert talk.history(told) == talk.written()


async def test_it_may_stay_in_its_lane(heads: Shim) -> None:
    heads.runtime.before["ParkSession"].append(fails("SNAPSHOT_STORE_UNAVAILABLE"))
    await Talk(heads, [SYSTEM]).says("Hello")
    await asyncio.to_thread(heads.runtime.wait_for, lambda: len(heads.runtime.requests["ParkSession"]) == 1)
    assert (await Talk(heads, [SYSTEM]).says("Another")).short == ("forked", "head")


async def test_a_new_session_that_is_asked_for_has_it_too(heads: Shim) -> None:
    talk = Talk(heads, [SYSTEM])
    await talk.says("Hello")
    told = await talk.says("And?", headers={"kakeya-session": "new"})
    assert told.short == ("forked", "head")
    assert talk.history(told) == talk.written()


async def test_a_head_of_another_length(heads: Shim) -> None:
    """A tag that names a place where no head ends is not followed."""
    await Talk(heads, [SYSTEM]).says("Hello")
    for _, given in heads.runtime.tagged:
        if given.place.kind == 1:
            given.place.history_length -= 1
    talk = Talk(heads, [SYSTEM])
    assert (await talk.says("Another")).short == ("new", "template")
