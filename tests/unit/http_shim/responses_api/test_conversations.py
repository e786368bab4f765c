"""Conversations that are kept: begun, looked at, noted, listed, added to, deleted."""

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from kakeya_http_shim.responses_api.conversation_bodies import ConversationObject, DeletedConversation
from kakeya_http_shim.responses_api.kept.kept_conversation import KeptConversation, appended
from kakeya_http_shim.responses_api.kept.packing import MAX_BYTES, packed
from kakeya_http_shim.routes.responses.item_pages import ItemList
from tests.unit.http_shim.responses_api.asking import user
from tests.unit.http_shim.shim import Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk.scripted_runtime import Fault, ScriptedRuntime, fails, fails_plainly

CONVERSATIONS = "/v1/conversations"
UNKNOWN = f"conv_{'0' * 32}"
NOT_FOUND = (404, "conversation_not_found")


async def begun(shim: Shim, *items: Any, **fields: Any) -> Any:
    """The conversation object."""
    response = await shim.http.post(CONVERSATIONS, json={"items": [*items], **fields})
    assert response.status_code == 200, response.text
    return ConversationObject.model_validate_json(response.content, strict=True).model_dump()


async def call(shim: Shim, method: str, path: str, body: Any = None, **query: Any) -> httpx.Response:
    content = {} if body is None else {"json": body}
    return await shim.http.request(method, f"{CONVERSATIONS}/{path}", params=query, **content)


async def added(shim: Shim, conversation_id: str, *items: Any) -> list[Any]:
    response = await call(shim, "POST", f"{conversation_id}/items", {"items": [*items]})
    assert response.status_code == 200, response.text
    return list(response.json()["data"])


async def listed(shim: Shim, conversation_id: str, **query: Any) -> list[Any]:
    query = {"order": "asc", "limit": 100, **query}
    return list((await call(shim, "GET", f"{conversation_id}/items", **query)).json()["data"])


def fault(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def said(items: list[Any]) -> list[str]:
    return [part["text"] for item in items for part in item["content"]]


async def test_one_is_looked_at_until_it_is_deleted(shim: Shim) -> None:
    conversation = await begun(shim, user("Hello"), metadata={"topic": "demo"})
    assert (conversation["object"], conversation["metadata"]) == ("conversation", {"topic": "demo"})
    path = conversation["id"]
    assert (await call(shim, "GET", path)).json() == conversation
    noted = await call(shim, "POST", path, {"metadata": {"topic": "other"}})
    assert noted.json() == {**conversation, "metadata": {"topic": "other"}}
    assert (await call(shim, "GET", path)).json() == noted.json()
    assert (await call(shim, "POST", path, {"metadata": None})).json()["metadata"] == {}
    assert said(await listed(shim, path)) == ["Hello"]
    gone = await call(shim, "DELETE", path)
    DeletedConversation.model_validate_json(gone.content, strict=True)
    assert gone.json() == {"id": path, "object": "conversation.deleted", "deleted": True}
    assert shim.runtime.objects == {}
    for method in ("GET", "DELETE"):
        assert fault(await call(shim, method, path)) == NOT_FOUND


async def test_it_is_kept_as_long_as_responses(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    async with serving_shim(runtime, tokenizer_dir, "--response-ttl-seconds", "60") as shim:
        conversation = await begun(shim)
        await added(shim, conversation["id"], user("Hello"))
        kept = [*runtime.requests["StoreObject"], *runtime.requests["UpdateObject"]]
        assert [each.ttl_seconds for each in kept] == [60, 60]
    async with serving_shim(runtime, tokenizer_dir, "--stored-responses", "off") as shim:
        assert fault(await shim.http.post(CONVERSATIONS, json={})) == (400, "not_stored")


async def test_items_come_behind_one_another(shim: Shim) -> None:
    conversation = await begun(shim, user("1"))
    new = await added(shim, conversation["id"], user("2"), {"role": "assistant", "content": "3", "id": "msg_mine"})
    assert (said(new), new[1]["id"], len({item["id"] for item in new})) == (["2", "3"], "msg_mine", 2)
    await added(shim, conversation["id"], {**user("4"), "id": ""})
    items = await listed(shim, conversation["id"])
    assert said(items) == ["1", "2", "3", "4"]
    assert items[1:3] == new
    page = await call(shim, "GET", f"{conversation['id']}/items", limit=2)
    ItemList.model_validate_json(page.content, strict=True)
    assert (said(page.json()["data"]), page.json()["has_more"]) == (["4", "3"], True)
    page = await call(shim, "GET", f"{conversation['id']}/items", after=page.json()["last_id"])
    assert (said(page.json()["data"]), page.json()["has_more"]) == (["2", "1"], False)
    for query in ({"limit": 0}, {"order": "up"}, {"after": "msg_1"}):
        assert fault(await call(shim, "GET", f"{conversation['id']}/items", **query)) == (400, "invalid_value")


async def test_what_is_added_is_all_that_is_written(shim: Shim) -> None:
    """Else each turn would cost the text of all turns before it."""
    conversation = await begun(shim, *(user(f"{number} of many") for number in range(200)))
    await added(shim, conversation["id"], user("Hello"))
    (written,) = shim.runtime.requests["UpdateObject"]
    assert written.appends
    assert len(written.data) < 200 < len(shim.runtime.objects[conversation["id"]])


async def test_one_item(shim: Shim) -> None:
    odd = "a/b c%"
    conversation = await begun(shim, user("1"), {**user("2"), "id": odd}, user("3"))
    items = await listed(shim, conversation["id"])
    for item in items:
        path = f"{conversation['id']}/items/{item['id'].replace('%', '%25')}"
        assert (await call(shim, "GET", path)).json() == item
    gone = await call(shim, "DELETE", f"{conversation['id']}/items/{odd.replace('%', '%25')}")
    assert gone.json() == conversation
    assert await listed(shim, conversation["id"]) == [items[0], items[2]]
    for method in ("GET", "DELETE"):
        path = f"{conversation['id']}/items/{odd.replace('%', '%25')}"
        assert fault(await call(shim, method, path)) == (404, "item_not_found")


async def test_nothing_is_left_of_an_item_that_was_deleted(shim: Shim) -> None:
    conversation = await begun(shim, user("1"))
    (secret,) = await added(shim, conversation["id"], user("secret"))
    await call(shim, "DELETE", f"{conversation['id']}/items/{secret['id']}")
    data = shim.runtime.objects[conversation["id"]]
    assert KeptConversation.unpacked(data).packed() == data
    assert [*KeptConversation.unpacked(data).ids()] == [item["id"] for item in await listed(shim, conversation["id"])]


async def test_ids_are_of_one_item_each(shim: Shim) -> None:
    twice = [{**user("1"), "id": "msg_1"}, {**user("2"), "id": "msg_1"}]
    refused = await shim.http.post(CONVERSATIONS, json={"items": twice})
    assert (fault(refused), refused.json()["error"]["param"]) == ((400, "invalid_value"), "items[1].id")
    conversation = await begun(shim, twice[0])
    refused = await call(shim, "POST", f"{conversation['id']}/items", {"items": [user("3"), twice[1]]})
    assert (fault(refused), refused.json()["error"]["param"]) == ((400, "invalid_value"), "items[1].id")
    assert said(await listed(shim, conversation["id"])) == ["1"]


@pytest.mark.parametrize("conversation_id", [UNKNOWN, "conv_1", "a b", "conv_" + "é" * 32])
async def test_what_is_not_there(shim: Shim, conversation_id: str) -> None:
    calls: list[tuple[str, str, Any]] = [
        *(("GET", "", None), ("DELETE", "", None), ("POST", "", {"metadata": {}})),
        *(("GET", "/items", None), ("POST", "/items", {"items": [user("a")]})),
        *(("GET", "/items/msg_1", None), ("DELETE", "/items/msg_1", None)),
    ]
    for method, below, body in calls:
        refused = await call(shim, method, conversation_id + below, body)
        assert (fault(refused), refused.json()["error"]["param"]) == (NOT_FOUND, "conversation_id")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("", {"items": [{"role": "user", "content": [{"type": "input_image"}]}]}, "items[0].content[0].type"),
        ("", {"metadata": {"a": 1}}, "metadata.a"),
        ("", {"metadata": {str(number): "" for number in range(17)}}, "metadata"),
        ("", {"nonsense": 1}, "nonsense"),
        (f"/{UNKNOWN}", {}, "metadata"),
        (f"/{UNKNOWN}/items", {"items": []}, "items"),
        (f"/{UNKNOWN}/items", {}, "items"),
    ],
)
async def test_what_is_refused(shim: Shim, path: str, body: Any, param: str) -> None:
    refused = await shim.http.post(CONVERSATIONS + path, json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


async def test_two_that_add_at_once_lose_nothing(shim: Shim) -> None:
    conversation = await begun(shim)

    async def write(writer: int) -> None:
        for number in range(5):
            await added(shim, conversation["id"], user(f"{writer}:{number}"), user(f"{writer}:{number}"))

    await asyncio.gather(*map(write, range(6)))
    texts = said(await listed(shim, conversation["id"], limit=100))
    assert texts[::2] == texts[1::2]  # what came together stands together
    for writer in range(6):
        assert [text for text in texts[::2] if text.startswith(f"{writer}:")] == [f"{writer}:{n}" for n in range(5)]


def adds(runtime: ScriptedRuntime, object_id: str, text: str) -> Fault:
    """Before a call of the runtime, somebody else adds an item."""

    def add(_: grpc.ServicerContext) -> None:
        part = {"type": "input_text", "text": text}
        item = {"type": "message", "role": "user", "id": f"msg_{text}", "content": [part]}
        runtime.objects[object_id] += appended([item])
        runtime.object_versions[object_id] += 1

    return add


async def test_changes_in_between_are_seen(shim: Shim) -> None:
    conversation = await begun(shim, user("1"))
    path, runtime = conversation["id"], shim.runtime
    runtime.before["UpdateObject"].append(adds(runtime, path, "2"))
    (third,) = await added(shim, path, user("3"))
    runtime.before["UpdateObject"].append(adds(runtime, path, "4"))
    await call(shim, "DELETE", f"{path}/items/{third['id']}")
    runtime.before["UpdateObject"].append(adds(runtime, path, "5"))
    await call(shim, "POST", path, {"metadata": {"a": "b"}})
    assert said(await listed(shim, path)) == ["1", "2", "4", "5"]
    assert (await call(shim, "GET", path)).json()["metadata"] == {"a": "b"}


async def test_one_that_others_change_without_end(shim: Shim) -> None:
    conversation = await begun(shim)
    shim.runtime.before["UpdateObject"] += [fails("OBJECT_CHANGED")] * 64
    refused = await call(shim, "POST", f"{conversation['id']}/items", {"items": [user("1")]})
    assert fault(refused) == (503, "conversation_changed")
    assert await listed(shim, conversation["id"]) == []


async def test_an_answer_that_was_lost_adds_nothing_twice(shim: Shim) -> None:
    conversation = await begun(shim)
    shim.runtime.after["UpdateObject"].append(fails("STORE_UNAVAILABLE", retry_after_seconds=0.01))
    await added(shim, conversation["id"], user("1"))
    assert said(await listed(shim, conversation["id"])) == ["1"]


async def test_one_that_is_full_says_so_and_loses_nothing(shim: Shim) -> None:
    def large(number: int) -> Any:
        return user("".join(chr(0x4E00 + (number * 7919 + place * place * 31) % 20_000) for place in range(60_000)))

    conversation = await begun(shim)
    num_added = 0
    while (
        response := await call(shim, "POST", f"{conversation['id']}/items", {"items": [large(num_added)]})
    ).is_success:
        num_added += 1
        assert num_added < 30
    assert fault(response) == (400, "conversation_full")
    items = await listed(shim, conversation["id"])
    assert len(items) == num_added > 2
    await call(shim, "DELETE", f"{conversation['id']}/items/{items[0]['id']}")
    assert (await call(shim, "POST", f"{conversation['id']}/items", {"items": [large(num_added)]})).is_success
    too_many = {"items": [large(number) for number in range(30)]}
    for path in (CONVERSATIONS, f"{CONVERSATIONS}/{conversation['id']}/items"):
        assert fault(await shim.http.post(path, json=too_many)) == (400, "conversation_full")


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (fails("QUOTA_EXCEEDED"), (429, "quota_exceeded")),
        (fails("PERMISSION_DENIED"), (403, "permission_denied")),
        (fails_plainly(grpc.StatusCode.UNIMPLEMENTED), (503, "not_stored")),
    ],
    ids=["quota", "permission", "an older runtime"],
)
async def test_a_runtime_that_fails(shim: Shim, refusal: Fault, expected: tuple[int, str]) -> None:
    conversation = await begun(shim)
    shim.runtime.before["StoreObject"].append(refusal)
    assert fault(await shim.http.post(CONVERSATIONS, json={})) == expected
    shim.runtime.before["UpdateObject"].append(refusal)
    assert fault(await call(shim, "POST", f"{conversation['id']}/items", {"items": [user("1")]})) == expected
    for method in ("GET", "DELETE"):
        shim.runtime.before[{"GET": "FetchObject", "DELETE": "DeleteObject"}[method]].append(refusal)
        assert fault(await call(shim, method, conversation["id"])) == expected


def _log(*told: Any) -> bytes:
    return b"".join(len(data).to_bytes(4) + data for data in map(packed, told))


def _size(told: Any) -> int:
    return len(json.dumps(told, separators=(",", ":")))


def _filling(size: int) -> Any:
    """Which has so many bytes as JSON."""
    told = {"items": [], "x": ""}
    return {**told, "x": "x" * (size - _size(told))}


_BEGIN = {"version": 1, "created_at": 1, "metadata": {}, "items": []}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no",
        _log([]),
        _log({**_BEGIN, "version": 2}),
        _log(_BEGIN, []),
        _log(_BEGIN)[:-1],
        _log(_BEGIN) + b"\0\0",
        _log(_BEGIN, "x" * MAX_BYTES),
        _log(_BEGIN, _filling(MAX_BYTES - _size(_BEGIN)), {"items": []}),
    ],
    ids=range(9),
)
async def test_what_another_one_has_stored_is_none(shim: Shim, data: bytes) -> None:
    shim.runtime.objects[UNKNOWN] = data
    assert fault(await call(shim, "GET", UNKNOWN)) == NOT_FOUND


async def test_a_client_that_leaves_within_its_body(shim: Shim) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", shim.port)
    head = (
        f"POST {CONVERSATIONS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n"
    )
    writer.write(f"{head}\r\n{{".encode())
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert await reader.read() == b""
    assert (await shim.http.get("/healthz")).status_code == 200
    assert shim.runtime.objects == {}
