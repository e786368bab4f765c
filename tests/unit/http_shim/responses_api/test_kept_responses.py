"""Responses that are stored: looked at, listed, deleted, cancelled."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from kakeya_http_shim.responses_api.kept.kept_response import KeptResponse
from kakeya_http_shim.responses_api.kept.latest import LatestResponses
from kakeya_http_shim.responses_api.response_object import ResponseObject
from kakeya_http_shim.responses_api.responses_writer import ResponsesWriter
from kakeya_http_shim.routes.responses.item_pages import ItemList
from kakeya_http_shim.routes.responses.kept_routes import DeletedResponse
from kakeya_stubs.v1 import runtime_pb2 as pb
from tests.unit.http_shim.responses_api.asking import DONE, RESPONSES, answered, ask, events, user
from tests.unit.http_shim.shim import Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk.scripted_runtime import Fault, ScriptedRuntime, fails, fails_plainly

UNKNOWN = f"resp_{'0' * 32}"


async def look(shim: Shim, response_id: str, **query: Any) -> httpx.Response:
    return await shim.http.get(f"{RESPONSES}/{response_id}", params=query)


async def listed(shim: Shim, response_id: str, **query: Any) -> httpx.Response:
    return await shim.http.get(f"{RESPONSES}/{response_id}/input_items", params=query)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Ids of those that the shim remembers as its latest."""
    found: set[str] = set()
    stored, deleted = LatestResponses.stored, LatestResponses.deleted

    def remember(latest: LatestResponses, kept: KeptResponse) -> None:
        stored(latest, kept)
        found.add(kept.response["id"])

    def forget(latest: LatestResponses, response_id: str) -> None:
        deleted(latest, response_id)
        found.discard(response_id)

    monkeypatch.setattr(LatestResponses, "stored", remember)
    monkeypatch.setattr(LatestResponses, "deleted", forget)
    return found


def code(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


@pytest.mark.parametrize("streams", [False, True])
async def test_a_response_can_be_looked_at_until_it_is_deleted(shim: Shim, known: set[str], streams: bool) -> None:
    shim.will_say("Hi")
    if streams:
        response = (await events(shim, instructions="Be kind."))[-1]["response"]
    else:
        response = await answered(shim, instructions="Be kind.")
    assert response["store"]
    found = await look(shim, response["id"])
    ResponseObject.model_validate_json(found.content, strict=True)
    assert (found.status_code, found.json()) == (200, response)
    assert known == {response["id"]}
    gone = await shim.http.delete(f"{RESPONSES}/{response['id']}")
    DeletedResponse.model_validate_json(gone.content, strict=True)
    assert gone.json() == {"id": response["id"], "object": "response", "deleted": True}
    for method in ("GET", "DELETE"):
        again = await shim.http.request(method, f"{RESPONSES}/{response['id']}")
        assert code(again) == (404, "response_not_found")
    assert shim.runtime.objects == {}
    assert not known


async def test_what_is_not_to_be_stored_is_not(shim: Shim) -> None:
    shim.will_say("Hi")
    response = await answered(shim, store=False)
    assert not response["store"]
    assert shim.runtime.objects == {}
    assert code(await look(shim, response["id"])) == (404, "response_not_found")


async def test_a_server_may_store_none_or_for_another_time(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    async with serving_shim(runtime, tokenizer_dir, "--stored-responses", "off") as shim:
        shim.will_say("Hi")
        assert not (await answered(shim, store=True))["store"]
        assert runtime.objects == {}
    async with serving_shim(runtime, tokenizer_dir, "--response-ttl-seconds", "60") as shim:
        shim.will_say("Hi")
        assert (await answered(shim))["store"]
        assert runtime.requests["StoreObject"][-1].ttl_seconds == 60


@pytest.mark.parametrize("response_id", [UNKNOWN, "resp_1", "a b", "resp_" + "é" * 32])
async def test_what_is_not_there(shim: Shim, response_id: str) -> None:
    path = f"{RESPONSES}/{response_id}"
    for method, each in (("GET", path), ("DELETE", path), ("GET", f"{path}/input_items"), ("POST", f"{path}/cancel")):
        assert code(await shim.http.request(method, each)) == (404, "response_not_found")


async def test_its_items(shim: Shim) -> None:
    shim.will_say("Hi")
    call = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
    conversation = [
        user("Hello"),
        {"role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]},
        {"type": "reasoning", "id": "rs_1", "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"role": "assistant", "content": "I look.", "id": "msg_1", "status": "incomplete"},
        call,
        {"type": "function_call_output", "call_id": "1", "output": "Sun"},
        user("And?"),
    ]
    response = await answered(shim, input=conversation)
    page = await listed(shim, response["id"], order="asc", limit=100)
    ItemList.model_validate_json(page.content, strict=True)
    told = page.json()
    assert (told["object"], told["has_more"]) == ("list", False)
    assert (told["first_id"], told["last_id"]) == (told["data"][0]["id"], told["data"][-1]["id"])
    assert [each["id"].split("_")[0] for each in told["data"]] == ["msg", "msg", "rs", "msg", "fc", "fco", "msg"]
    assert len({each["id"] for each in told["data"]}) == len(conversation)
    for each in told["data"]:
        each.pop("id")
    said = {"type": "message", "status": "completed"}
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    assert told["data"] == [
        {**said, "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        {**said, **conversation[1]},
        thought,
        {**said, "role": "assistant", "status": "incomplete", "content": [{"type": "output_text", "text": "I look."}]},
        {**call, "status": "completed"},
        {"type": "function_call_output", "call_id": "1", "output": "Sun", "status": "completed"},
        {**said, "role": "user", "content": [{"type": "input_text", "text": "And?"}]},
    ]


async def test_its_items_page_by_page(shim: Shim) -> None:
    shim.will_say("Hi")
    response = await answered(shim, input=[user(str(number)) for number in range(25)])
    ids: list[str] = []
    after: dict[str, str] = {}
    sizes = []
    while True:
        page = (await listed(shim, response["id"], **after)).json()
        sizes.append(len(page["data"]))
        ids += [each["id"] for each in page["data"]]
        if not page["has_more"]:
            break
        after = {"after": page["last_id"]}
    assert (sizes, len(set(ids))) == ([20, 5], 25)
    whole = (await listed(shim, response["id"], order="asc", limit=100)).json()
    assert [each["id"] for each in whole["data"]] == ids[::-1]
    empty = (await listed(shim, response["id"], after=ids[-1])).json()
    assert (empty["data"], empty["first_id"], empty["last_id"]) == ([], None, None)
    for query in ({"limit": "0"}, {"limit": "101"}, {"limit": "x"}, {"order": "up"}, {"after": "msg_1"}):
        refused = await listed(shim, response["id"], **query)
        assert code(refused) == (400, "invalid_value")
        assert refused.json()["error"]["param"] == next(iter(query))


@pytest.mark.parametrize(
    "fault",
    [fails("QUOTA_EXCEEDED"), fails("INVALID_FIELD", field="data"), fails_plainly(grpc.StatusCode.UNIMPLEMENTED)],
    ids=["quota", "too large", "an older runtime"],
)
@pytest.mark.parametrize("streams", [False, True])
async def test_one_that_cannot_be_stored_says_so(shim: Shim, streams: bool, fault: Fault) -> None:
    shim.will_say("Hi")
    shim.runtime.before["StoreObject"] += [fault] * 2
    if streams:
        told = await events(shim)
        assert told[0]["response"]["store"]
        response = told[-1]["response"]
    else:
        response = await answered(shim)
    assert (response["store"], response["status"], shim.runtime.objects) == (False, "completed", {})


async def test_of_one_that_cannot_be_stored_nothing_is_left(shim: Shim) -> None:
    shim.will_say("Hi")
    shim.runtime.before["UpdateObject"] += [fails("QUOTA_EXCEEDED")]
    assert not (await events(shim))[-1]["response"]["store"]
    assert shim.runtime.objects == {}


@pytest.mark.parametrize("reason", ["PERMISSION_DENIED", "QUOTA_EXCEEDED"])
async def test_a_runtime_that_fails(shim: Shim, reason: str) -> None:
    for method, call in (("FetchObject", "GET"), ("DeleteObject", "DELETE")):
        shim.runtime.before[method].append(fails(reason))
        response = await shim.http.request(call, f"{RESPONSES}/{UNKNOWN}")
        assert response.status_code == {"PERMISSION_DENIED": 403, "QUOTA_EXCEEDED": 429}[reason]


async def test_one_that_fails_is_kept_as_it_is(shim: Shim) -> None:
    shim.will_say("Hi", ends=False)
    shim.runtime.after["Generate"].append(fails("WORKER_LOST"))
    failed = (await events(shim, max_output_tokens=2))[-1]
    assert failed["type"] == "response.failed"
    assert (await _kept_as(shim, failed["response"]["id"], "failed"))["error"] == failed["response"]["error"]


async def test_one_that_fails_before_anybody_knows_of_it_is_not_kept(shim: Shim) -> None:
    shim.runtime.before["Generate"].append(fails("WORKER_LOST"))
    assert (await ask(shim)).status_code == 503
    assert shim.runtime.objects == {}


async def _kept_as(shim: Shim, response_id: str, status: str) -> Any:
    """What is kept, once it has that status."""
    async with asyncio.timeout(60):
        while True:
            response = (await look(shim, response_id)).json()
            if response.get("status") == status:
                return response
            await asyncio.sleep(0.01)


async def _begun(lines: Any) -> str:
    """The id of a stream's response."""
    async for line in lines:
        if line.startswith("data: "):
            return str(json.loads(line.removeprefix("data: "))["response"]["id"])
    raise AssertionError


async def test_a_client_that_leaves(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    runtime.hold_after = 2
    async with serving_shim(runtime, tokenizer_dir, "--response-linger-seconds", "0") as shim:
        body = {"input": "Hello", "max_output_tokens": 5, "stream": True}
        async with shim.http.stream("POST", RESPONSES, json=body) as response:
            lines = response.aiter_lines()  # an iterator that nobody has any more closes the stream
            response_id = await _begun(lines)
            await _kept_as(shim, response_id, "in_progress")
        assert (await _kept_as(shim, response_id, "cancelled"))["store"]
        await shim.nothing_left()


async def test_one_that_runs_is_cancelled(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    runtime.hold_after = 2
    async with serving_shim(runtime, tokenizer_dir) as shim:
        body = {"input": "Hello", "max_output_tokens": 5, "stream": True}
        async with shim.http.stream("POST", RESPONSES, json=body) as response:
            said = ""
            lines = response.aiter_lines()
            response_id = await _begun(lines)
            cancelled = await shim.http.post(f"{RESPONSES}/{response_id}/cancel")
            async for line in lines:
                said += line + "\n"
        assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
        assert DONE not in said
        assert '"code":"cancelled"' in said.splitlines()[-2]
        assert (await look(shim, response_id)).json() == cancelled.json()
        again = await shim.http.post(f"{RESPONSES}/{response_id}/cancel")
        assert code(again) == (400, "not_running")
        await shim.nothing_left()


async def test_one_that_runs_is_deleted_for_good(shim: Shim, known: set[str]) -> None:
    """Its client gets the rest of it, and nothing more is stored."""
    shim.runtime.token_seconds = 0.2
    body = {"input": "Hello", "max_output_tokens": 5, "stream": True}
    async with shim.http.stream("POST", RESPONSES, json=body) as response:
        lines = response.aiter_lines()
        response_id = await _begun(lines)
        gone = await shim.http.delete(f"{RESPONSES}/{response_id}")
        rest = [line async for line in lines]
    assert gone.status_code == 200
    assert DONE in rest
    assert '"store":true' in rest[-4], "it was stored, until it was deleted"
    assert shim.runtime.objects == {}
    assert not known


async def test_one_is_deleted_for_good_when_its_client_leaves(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    """That it has left is stored after its answer has ended."""
    runtime.hold_after = 2
    held = threading.Event()

    def hold(_: Any) -> None:
        held.wait(60)

    async with serving_shim(runtime, tokenizer_dir, "--response-linger-seconds", "0") as shim:
        body = {"input": "Hello", "max_output_tokens": 5, "stream": True}
        async with shim.http.stream("POST", RESPONSES, json=body) as response:
            lines = response.aiter_lines()  # an iterator that nobody has any more closes the stream
            response_id = await _begun(lines)
            await _kept_as(shim, response_id, "in_progress")
            runtime.before["UpdateObject"].append(hold)
        await asyncio.to_thread(runtime.wait_for, lambda: not runtime.before["UpdateObject"])
        gone = asyncio.create_task(shim.http.delete(f"{RESPONSES}/{response_id}"))
        await asyncio.sleep(0.1)  # it waits for what is held
        held.set()
        assert (await gone).status_code == 200
    assert runtime.objects == {}


async def test_one_that_has_ended_is_not_cancelled(shim: Shim) -> None:
    shim.will_say("Hi")
    response = await answered(shim)
    assert code(await shim.http.post(f"{RESPONSES}/{response['id']}/cancel")) == (400, "not_running")


async def test_a_client_that_leaves_while_it_is_stored(shim: Shim) -> None:
    """The answer is whole, and so is what is kept."""
    shim.will_say("Hi")
    held = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold(_: Any) -> None:
        asyncio.run_coroutine_threadsafe(held.wait(), loop).result(60)

    shim.runtime.before["StoreObject"].append(hold)
    with pytest.raises(httpx.ReadTimeout):
        await shim.http.post(RESPONSES, json={"input": "Hello"}, timeout=httpx.Timeout(60, read=0.3))
    held.set()
    async with asyncio.timeout(60):
        while not shim.runtime.objects:
            await asyncio.sleep(0.01)
    (response_id,) = shim.runtime.objects
    assert (await look(shim, response_id)).json()["status"] == "completed"


async def test_one_that_the_runtime_stops(shim: Shim) -> None:
    done = pb.GenerateDone(stop_reason=pb.STOP_REASON_CANCELLED, history_length=40)
    shim.runtime.unusual_responses = [pb.GenerateResponse(token_id=5), pb.GenerateResponse(done=done)]
    failed = (await events(shim))[-1]["response"]
    assert (await _kept_as(shim, failed["id"], "failed"))["error"]["code"] == failed["error"]["code"] == "stopped"


async def test_what_nobody_foresaw(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("internals")

    monkeypatch.setattr(ResponsesWriter, "pieces", fail)
    shim.will_say("Hi")
    response = await ask(shim, stream=True)
    assert "internals" not in response.text
    failed = json.loads(response.text.splitlines()[-2].removeprefix("data: "))["response"]
    assert (await _kept_as(shim, failed["id"], "failed"))["error"]["code"] == "internal_error"
