"""Responses that go on from one: what a server knows of that, and what is kept of them before their end."""

import gc
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kakeya_http_shim.conversations.said import SESSION_HEADER, SESSION_ID_HEADER
from kakeya_http_shim.models.model_tokenizer import ModelTokenizer
from kakeya_http_shim.responses_api.kept.kept_items import KeptItems
from kakeya_http_shim.responses_api.kept.kept_response import Behind, KeptResponse
from kakeya_http_shim.responses_api.kept.latest import LatestResponses
from kakeya_http_shim.responses_api.kept.packing import Unpacking, records
from tests.unit.http_shim.responses_api.asking import RESPONSES, answered, ask, texts
from tests.unit.http_shim.responses_api.test_kept_items import as_kept, turns
from tests.unit.http_shim.responses_api.test_told_again import ON, left, told
from tests.unit.http_shim.served import eventually
from tests.unit.http_shim.shim import Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails, passes


@pytest.fixture
async def live(runtime: ScriptedRuntime, tokenizer_dir: Path) -> AsyncIterator[Shim]:
    async with serving_shim(runtime, tokenizer_dir, *ON) as shim:
        yield shim


def kept(shim: Shim, response_id: str) -> KeptResponse:
    return KeptResponse.unpacked(shim.runtime.objects[response_id])


def version(shim: Shim, response_id: str) -> int:
    first, *_ = records(shim.runtime.objects[response_id])
    return int(Unpacking().unpacked(first)[0]["version"])


async def items(shim: Shim, response_id: str) -> list[str]:
    """What was said before its answer."""
    page = await shim.http.get(f"{RESPONSES}/{response_id}/input_items", params={"order": "asc"})
    assert page.status_code == 200, page.text
    contents = [item["content"] for item in page.json()["data"]]
    return [content if isinstance(content, str) else content[0]["text"] for content in contents]


async def said_first(shim: Shim) -> str:
    shim.will_say("Hi.")
    return str((await answered(shim, input="Good morning"))["id"])


ALL = ["Good morning", "Hi.", "Hello"]


async def test_until_its_end_it_has_its_own_items_alone(pair: tuple[Shim, Shim]) -> None:
    first, second = pair
    before = await said_first(first)
    response_id = await left(first, second, previous_response_id=before)
    begun = kept(second, response_id)
    assert (begun.after, len(begun.items), version(second, response_id)) == (before, 1, 4)
    assert await items(second, response_id) == ALL
    await told(second, response_id)
    whole = kept(second, response_id)
    assert (whole.after, len(whole.items), version(second, response_id)) == (None, 3, 3)
    assert (await first.http.delete(f"{RESPONSES}/{before}")).status_code == 200
    assert await items(first, response_id) == ALL
    first.will_say("Yes.")
    again = await answered(first, previous_response_id=response_id, input="And?")
    assert again["usage"]["input_tokens_details"]["cached_tokens"] > 0
    assert await items(first, again["id"]) == [*ALL, texts(whole.response)[0], "And?"]


async def test_a_lost_one_whose_beginning_was_deleted_cannot_be_gone_on_with(pair: tuple[Shim, Shim]) -> None:
    first, second = pair
    before = await said_first(first)
    response_id = await left(first, second, previous_response_id=before)
    assert (await second.http.delete(f"{RESPONSES}/{before}")).status_code == 200
    assert await items(second, response_id) == ["Hello"]
    assert "server_lost" in await told(second, response_id)
    assert (await second.http.get(f"{RESPONSES}/{response_id}")).json()["status"] == "failed"
    assert await items(second, response_id) == ["Hello"]


async def test_a_runtime_that_fails_says_nothing_of_the_beginning(pair: tuple[Shim, Shim]) -> None:
    first, second = pair
    response_id = await left(first, second, previous_response_id=await said_first(first))
    for path, query in ((f"{response_id}/input_items", {}), (response_id, {"stream": "true"})):
        # What is asked for itself is there; a stream is looked at once more before it is gone on with.
        second.runtime.before["FetchObject"] += [passes] * (1 + len(query)) + [fails("PERMISSION_DENIED")]
        refused = await second.http.get(f"{RESPONSES}/{path}", params=query)
        assert refused.status_code == 403
    assert await items(second, response_id) == ALL


async def test_what_cannot_be_read_any_more_is_not_gone_on_with(pair: tuple[Shim, Shim]) -> None:
    """The answer that had been taken over for that ends."""
    first, second = pair
    response_id = await left(first, second)
    sealed = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}
    lost = kept(second, response_id)
    items_then = KeptItems([sealed, *lost.items])
    second.runtime.objects[response_id] = replace(lost, items=items_then).packed()
    refused = await second.http.get(f"{RESPONSES}/{response_id}", params={"stream": "true"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_encrypted_content")
    await eventually(lambda: not any(session.running for session in second.runtime.sessions.values()))


async def test_a_lost_one_has_all_its_items_while_they_are_there(pair: tuple[Shim, Shim]) -> None:
    first, second = pair
    response_id = await left(first, second, previous_response_id=await said_first(first))
    second.runtime.sessions.clear()
    assert (await second.http.get(f"{RESPONSES}/{response_id}")).json()["error"]["code"] == "server_lost"
    assert await items(second, response_id) == ALL


async def test_what_is_asked_for_is_made_while_the_runtime_is_asked(
    live: Shim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither waits for the other."""
    before, asked, made = await said_first(live), threading.Event(), threading.Event()
    behind_either = ModelTokenizer.behind_either
    waits: list[bool] = []

    def making(*given: Any, **options: Any) -> Any:
        waits.append(asked.wait(60))
        made.set()
        return behind_either(*given, **options)

    def answering(_: Any) -> None:
        asked.set()
        waits.append(made.wait(60))

    monkeypatch.setattr(ModelTokenizer, "behind_either", making)
    live.runtime.before["FetchObject"].append(answering)
    live.will_say("Yes.")
    response = await answered(live, previous_response_id=before, input="Hello")
    assert waits == [True, True]
    assert await items(live, response["id"]) == ALL
    assert response["usage"]["input_tokens_details"]["cached_tokens"] > 0


async def test_the_runtime_has_the_last_word(live: Shim) -> None:
    """What another server has made of a response counts, whatever this one knows."""
    before = await said_first(live)
    known = kept(live, before)
    output = [
        {**known.response["output"][0], "content": [{"type": "output_text", "text": "Go away.", "annotations": []}]}
    ]
    for refused in (
        replace(known, response={**known.response, "status": "failed"}),
        replace(known, behind=Behind(f"conv_{'0' * 32}", "msg_1")),
    ):
        live.runtime.objects[before] = refused.packed()
        assert (await ask(live, previous_response_id=before)).status_code == 400
    for changed, expected in (
        (replace(known, items=KeptItems(turns(1, 3)).followed_by(known.items)), 6),
        (replace(known, response={**known.response, "output": output}), 4),
    ):
        live.runtime.objects[before] = changed.packed()
        live.will_say("Yes.")
        response = await answered(live, previous_response_id=before, input="Hello")
        found = await items(live, response["id"])
        assert len(found) == expected - 1
        assert found[-2:] == [texts(changed.response)[0], "Hello"]
    del live.runtime.objects[before]
    gone = await ask(live, previous_response_id=before)
    assert gone.json()["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize("headers", [{}, {SESSION_HEADER: "new"}, {SESSION_ID_HEADER: "s"}])
async def test_nothing_is_done_for_what_is_not_there_any_more(live: Shim, headers: dict[str, str]) -> None:
    """Whatever this server knows of it: no session is looked for, none opened."""
    before = await said_first(live)
    del live.runtime.objects[before]
    called: list[Any] = []
    for call in ("FindSession", "CreateSession", "Turn"):
        live.runtime.before[call].append(called.append)
    body = {"input": "Hello", "previous_response_id": before}
    gone = await live.http.post(RESPONSES, json=body, headers=headers)
    assert gone.json()["error"]["code"] == "previous_response_not_found"
    assert called == []


async def test_what_cannot_be_asked_for_is_refused_as_ever(live: Shim) -> None:
    before = await said_first(live)
    for fields, status in (({"model": "nobody's"}, 404), ({"input": []}, 400)):
        refused = await ask(live, previous_response_id=before, **fields)
        assert refused.status_code == status
    assert len(live.runtime.objects) == 1


def stored(number: int, num_turns: int = 1) -> KeptResponse:
    return KeptResponse({"id": f"resp_{number}", "output": []}, KeptItems(turns(num_turns)))


def test_the_latest_are_known() -> None:
    latest = LatestResponses(2)
    responses = [stored(number) for number in range(3)]
    for each in responses:
        assert latest.up_to(each.response["id"]) is None
        latest.stored(each)
    assert latest.up_to("resp_0") is None
    for each in responses[1:]:
        known = latest.up_to(each.response["id"])
        assert known is not None
        assert [*known.kept] == [*each.items]
        assert known.kept.is_like(KeptItems.unpacked(each.items.packed, Unpacking(0)))
        assert not known.kept.is_like(responses[0].items)
        assert not known.kept.is_like(KeptItems.unpacked(as_kept([*each.items]), Unpacking(0)).followed_by(turns(1)))


def test_one_that_is_deleted_is_not_known() -> None:
    latest, response = LatestResponses(), stored(1)
    latest.stored(response)
    latest.deleted("resp_1")
    assert latest.up_to("resp_1") is None
    latest.deleted("resp_1")


def test_one_in_a_conversation_is_not_known() -> None:
    """What is before it may change."""
    latest, response = LatestResponses(), replace(stored(1), behind=Behind("conv_1", None))
    latest.stored(response)
    assert latest.up_to("resp_1") is None


def test_what_is_forgotten_is_not_known() -> None:
    latest = LatestResponses()
    _go_on(latest)
    gc.collect()  # until then who had the blocks may have them still
    assert latest.up_to("resp_1") is None, "its last block has become another"
    assert latest.up_to("resp_2") is not None


def _go_on(latest: LatestResponses) -> None:
    """From one that is known."""
    response = stored(1, num_turns=60)
    latest.stored(response)
    assert latest.up_to("resp_1") is not None
    items = KeptItems.unpacked(response.items.packed, Unpacking(0)).followed_by(turns(1))
    latest.stored(KeptResponse({"id": "resp_2", "output": []}, items))
