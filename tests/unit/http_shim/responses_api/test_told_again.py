"""Streams of stored responses: told again, gone on with behind any event, also by another server."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kakeya_http_shim.responses_api.kept.kept_items import KeptItems
from kakeya_http_shim.responses_api.kept.kept_response import KeptResponse
from tests.unit.http_shim.responses_api.asking import DONE, RESPONSES, answered, ask, put_together, texts
from tests.unit.http_shim.responses_api.test_response_thoughts import SAID, TEMPLATE
from tests.unit.http_shim.responses_api.test_response_tools import ONE, OTHER, TOOLS
from tests.unit.http_shim.served import eventually
from tests.unit.http_shim.shim import Shim, data
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk import families, tiny_tokenizer
from tests.unit.sdk.scripted_runtime import Fault, ScriptedRuntime, fails, passes

ON = ("--live-sessions", "on")


async def told(shim: Shim, response_id: str, **query: Any) -> str:
    """The text of a stream."""
    response = await shim.http.get(f"{RESPONSES}/{response_id}", params={"stream": "true", **query})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return response.text


async def cut_everywhere(shim: Shim, stream: str) -> None:
    """Behind each event of a stream comes the rest of it."""
    *blocks, _ = stream.split("\n\n")
    blocks = [block for block in blocks if not block.startswith(":")]
    first = data(blocks[0].splitlines())[0]
    response_id, is_done = first["response"]["id"], blocks[-1] == DONE
    assert await told(shim, response_id) == "".join(f"{block}\n\n" for block in blocks)
    for number in range(len(blocks) - is_done):
        rest = "".join(f"{block}\n\n" for block in blocks[number + 1 :])
        assert await told(shim, response_id, starting_after=number) == rest


async def stream_of(shim: Shim, **fields: Any) -> str:
    response = await ask(shim, stream=True, **fields)
    assert response.status_code == 200
    return response.text


async def begun(lines: AsyncIterator[str]) -> str:
    """The id of a stream's response."""
    async for line in lines:
        if line.startswith("data: "):
            return str(data([line])[0]["response"]["id"])
    raise AssertionError


async def kept_as(shim: Shim, response_id: str, status: str) -> Any:
    """What is kept, once it has that status."""
    async with asyncio.timeout(60):
        while True:
            response = (await shim.http.get(f"{RESPONSES}/{response_id}")).json()
            if response.get("status") == status:
                return response
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("said", "fields"), [("Hé there!", {}), ("", {}), ("cut here", {"max_output_tokens": 3})])
async def test_one_that_has_ended(pair: tuple[Shim, Shim], said: str, fields: dict[str, Any]) -> None:
    pair[0].will_say(said)
    await cut_everywhere(pair[1], await stream_of(pair[0], **fields))


async def test_thoughts(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    tiny_tokenizer.save(tmp_path, template=True)
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    async with serving_shim(runtime, tmp_path, *ON) as shim:
        shim.will_say(SAID)
        await cut_everywhere(shim, await stream_of(shim))


async def test_calls(roomy: ScriptedRuntime, tmp_path: Path) -> None:
    families.save(tmp_path, families.ONES["qwen2_5"])
    async with serving_shim(roomy, tmp_path, *ON) as shim:
        said = f"I look. {ONE}\n{OTHER}"
        for num_tokens in (len(shim.tokens(said)) + 1, len(shim.tokens(said)) - 8):
            shim.will_say(said)
            namespace = {"type": "namespace", "name": "n", "tools": TOOLS[1:]}
            fields = {"tools": [TOOLS[0], namespace], "max_output_tokens": num_tokens}
            await cut_everywhere(shim, await stream_of(shim, **fields))


async def test_one_that_failed(shim: Shim) -> None:
    shim.will_say("Hi", ends=False)
    shim.runtime.after["Generate"].append(fails("WORKER_LOST"))
    stream = await stream_of(shim, max_output_tokens=2)
    assert DONE not in stream
    await cut_everywhere(shim, stream)


async def test_one_whose_conversation_has_no_room(shim: Shim) -> None:
    path = (await shim.http.post("/v1/conversations", json={})).json()["id"]
    for said in ("Hi", ""):
        shim.will_say(said)
        shim.runtime.before["UpdateObject"].append(fails("INVALID_FIELD", field="data"))
        stream = await stream_of(shim, conversation=path)
        assert "conversation_full" in stream
        await cut_everywhere(shim, stream)


async def test_one_that_was_cancelled(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    runtime.hold_after = 2
    async with serving_shim(runtime, tokenizer_dir) as shim:
        body = {"input": "Hello", "max_output_tokens": 5, "stream": True}
        async with shim.http.stream("POST", RESPONSES, json=body) as response:
            said, lines = "", response.aiter_text()
            async for piece in lines:
                said += piece
                if said.count("output_text.delta") and "cancelled" not in said:
                    response_id = data(said.splitlines())[0]["response"]["id"]
                    await shim.http.post(f"{RESPONSES}/{response_id}/cancel")
        await cut_everywhere(shim, said)
        await shim.nothing_left()


async def test_a_plain_one_comes_in_one_piece(shim: Shim) -> None:
    shim.will_say("Hello there")
    response = await answered(shim)
    events = data((await told(shim, response["id"])).splitlines())
    assert events.pop() == "[DONE]"
    assert [event["delta"] for event in events if "delta" in event] == ["Hello there"]
    assert put_together(events) == response


async def test_one_that_an_older_server_has_stored(shim: Shim) -> None:
    shim.will_say("Hi")
    response = await answered(shim)
    path = f"{RESPONSES}/{response['id']}"
    for status, error in (("completed", None), ("failed", {"code": "c", "message": "m"}), ("cancelled", None)):
        kept = KeptResponse({**response, "status": status, "error": error}, KeptItems())
        shim.runtime.objects[response["id"]] = kept.packed()
        events = data((await told(shim, response["id"])).splitlines())
        assert [event["sequence_number"] for event in events if event != "[DONE]"] == [*range(len(events))][
            : len(events) - (events[-1] == "[DONE]")
        ]
    shim.runtime.objects[response["id"]] = KeptResponse({**response, "status": "in_progress"}, KeptItems()).packed()
    assert (await shim.http.get(path)).json()["status"] == "in_progress"
    unrun = await shim.http.get(path, params={"stream": "true"})
    assert (unrun.status_code, unrun.json()["error"]["param"]) == (400, "stream")
    shim.runtime.objects[response["id"]] = KeptResponse({**response, "output": [{"type": "x"}]}, KeptItems()).packed()
    unreadable = await shim.http.get(path, params={"stream": "true"})
    assert (unreadable.status_code, unreadable.json()["error"]["param"]) == (400, "stream")


@pytest.mark.parametrize(
    "query",
    [
        {"stream": "yes"},
        {"stream": "true", "starting_after": "-1"},
        {"stream": "true", "starting_after": "x"},
        {"starting_after": "y"},
        {"include_obfuscation": "true"},
    ],
)
async def test_what_is_no_query(shim: Shim, query: dict[str, str]) -> None:
    refused = await shim.http.get(f"{RESPONSES}/resp_{'0' * 32}", params=query)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == [*query][-1]


async def test_a_client_that_comes_again_misses_nothing(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    runtime.token_seconds = 0.02
    async with serving_shim(runtime, tokenizer_dir, *ON) as shim:
        shim.will_say("one two three four five six seven eight")
        said = ""
        async with shim.http.stream("POST", RESPONSES, json={"input": "Hi", "stream": True}) as response:
            async for piece in response.aiter_text():
                said += piece
                if said.count("output_text.delta") > 3:
                    break
        events = data(said[: said.rindex("\n\n")].splitlines())
        response_id, number = events[0]["response"]["id"], events[-1]["sequence_number"]
        assert (await shim.http.get(f"{RESPONSES}/{response_id}")).json()["status"] == "in_progress"
        both = await asyncio.gather(*(told(shim, response_id, starting_after=each) for each in (number, number, 0)))
        assert both.pop().startswith("event: response.in_progress")
        assert both[0] == both[1]
        events += data(both[0].splitlines())
        assert events.pop() == "[DONE]"
        assert texts(put_together(events)) == ["one two three four five six seven eight"]
        assert runtime.num_cancelled == 0


@pytest.mark.parametrize("live", ["on", "off"])
async def test_another_server_goes_on_with_it(runtime: ScriptedRuntime, tokenizer_dir: Path, live: str) -> None:
    """It answers from the first token on; the one that had it says so to its client, and writes nothing more."""
    runtime.hold_after = 2
    flags = ("--live-sessions", live)
    async with (
        serving_shim(runtime, tokenizer_dir, *flags) as first,
        serving_shim(runtime, tokenizer_dir, *flags) as second,
    ):
        body = {"input": "Hello", "max_output_tokens": 5, "stream": True, "metadata": {"a": "b"}}
        async with first.http.stream("POST", RESPONSES, json=body) as response:
            lines = response.aiter_lines()
            response_id = await begun(lines)
            await asyncio.to_thread(runtime.wait_for, lambda: any(each.running for each in runtime.sessions.values()))
            runtime.hold_after = None
            stream = await told(second, response_id)
            rest = "\n".join([line async for line in lines])
        assert "stream_taken_over" in rest, rest
        events = data(stream.splitlines())
        assert events.pop() == "[DONE]"
        response_object = put_together(events)
        assert response_object["metadata"] == {"a": "b"}
        assert (await second.http.get(f"{RESPONSES}/{response_id}")).json() == response_object
        await cut_everywhere(first, stream)
        if live == "on":
            runtime.answers.append([])
            again = await answered(second, previous_response_id=response_id, input="And?", max_output_tokens=2)
            assert again["usage"]["input_tokens_details"]["cached_tokens"] > 0
            assert len(runtime.sessions) == 1
        else:
            await second.nothing_left()


async def left(first: Shim, second: Shim, **fields: Any) -> str:
    """The id of a response whose server is lost: it never writes, and its session stays as it is."""
    runtime = first.runtime
    runtime.hold_after = 2
    body = {"input": "Hello", "max_output_tokens": 5, "stream": True, **fields}
    async with first.http.stream("POST", RESPONSES, json=body) as response:
        response_id = await begun(response.aiter_lines())
        await kept_as(second, response_id, "in_progress")
        (session_id,) = runtime.sessions
        left, session = runtime.objects[response_id], runtime.sessions[session_id]
        await first.http.post(f"{RESPONSES}/{response_id}/cancel")
    await eventually(lambda: not session.running)
    runtime.objects[response_id] = left
    runtime.object_versions[response_id] += 1
    runtime.sessions[session_id] = session
    runtime.hold_after = None
    return response_id


async def test_one_that_nobody_goes_on_with_is_settled(pair: tuple[Shim, Shim]) -> None:
    first, second = pair
    response_id = await left(first, second)
    path = f"{RESPONSES}/{response_id}"
    assert (await second.http.get(path)).json()["status"] == "in_progress"  # it may be gone on with
    second.runtime.idle_seconds = 31.0
    refused = await ask(second, previous_response_id=response_id)
    assert refused.status_code == 400
    failed = (await second.http.get(path)).json()
    assert (failed["status"], failed["error"]["code"], failed["output"]) == ("failed", "server_lost", [])
    events = data((await told(second, response_id, starting_after=7)).splitlines())
    assert [(event["type"], event["sequence_number"]) for event in events] == [("error", 8), ("response.failed", 9)]
    whole = data((await told(second, response_id)).splitlines())
    assert [event["sequence_number"] for event in whole] == [0, 1, 2, 3]


async def test_one_whose_session_has_ended_is_settled(pair: tuple[Shim, Shim]) -> None:
    first, second = pair
    response_id = await left(first, second)
    second.runtime.sessions.clear()
    assert (await second.http.get(f"{RESPONSES}/{response_id}")).json()["error"]["code"] == "server_lost"


async def test_one_that_cannot_be_gone_on_with_is_settled(pair: tuple[Shim, Shim]) -> None:
    first, second = pair
    response_id = await left(first, second)
    for session in second.runtime.sessions.values():
        session.last_request, session.history = "another", [*session.history, 1]
    events = data((await told(second, response_id, starting_after=3)).splitlines())
    assert [event["type"] for event in events] == ["error", "response.failed"]
    assert events[-1]["response"]["error"]["code"] == "server_lost"


@pytest.mark.parametrize(
    ("call", "fault", "status"),
    [
        ("GetSessionInfo", fails("PERMISSION_DENIED"), 403),
        ("Generate", fails("NO_CAPACITY"), 429),
        ("UpdateObject", fails("QUOTA_EXCEEDED"), 429),
    ],
)
async def test_a_runtime_that_fails_settles_nothing(
    pair: tuple[Shim, Shim], call: str, fault: Fault, status: int
) -> None:
    first, second = pair
    response_id = await left(first, second)
    second.runtime.before[call].append(fault)
    refused = await second.http.get(f"{RESPONSES}/{response_id}", params={"stream": "true"})
    assert refused.status_code == status
    assert (await second.http.get(f"{RESPONSES}/{response_id}")).json()["status"] == "in_progress"


async def test_one_that_was_deleted_goes_on_where_its_stream_breaks_off(pair: tuple[Shim, Shim]) -> None:
    first, second = pair
    runtime = first.runtime
    runtime.hold_after = 2
    body = {"input": "Hello", "max_output_tokens": 5, "stream": True}
    async with first.http.stream("POST", RESPONSES, json=body) as response:
        lines = response.aiter_lines()
        response_id = await begun(lines)
        assert (await second.http.delete(f"{RESPONSES}/{response_id}")).status_code == 200
        runtime.hold_after = None
        for session in runtime.sessions.values():
            session.taken |= session.running
        assert DONE in [line async for line in lines]
    assert runtime.objects == {}


async def test_one_that_others_change_all_the_time_is_not_stored(shim: Shim) -> None:
    shim.will_say("Hi")
    shim.runtime.before["UpdateObject"] += [fails("OBJECT_CHANGED")] * 8
    shim.runtime.before["DeleteObject"].append(fails("QUOTA_EXCEEDED"))
    assert '"store":false' in (await stream_of(shim)).splitlines()[-4]


async def test_one_that_others_take_all_the_time(pair: tuple[Shim, Shim]) -> None:
    response_id = await left(*pair)
    pair[1].runtime.before["UpdateObject"] += [fails("OBJECT_CHANGED")] * 8
    refused = await pair[1].http.get(f"{RESPONSES}/{response_id}", params={"stream": "true"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "stream_taken_over")


async def test_one_that_ends_while_it_is_taken(pair: tuple[Shim, Shim]) -> None:
    first, second = pair
    response_id = await left(first, second)
    kept = KeptResponse.unpacked(second.runtime.objects[response_id])

    def end(_: Any) -> None:
        ended = KeptResponse({**kept.response, "status": "completed"}, kept.items)
        second.runtime.objects[response_id] = ended.packed()

    second.runtime.before["FetchObject"] += [passes, end]
    assert DONE in await told(second, response_id)


async def test_one_whose_conversation_is_gone_is_not_gone_on_with(pair: tuple[Shim, Shim]) -> None:
    first, second = pair
    path = (await first.http.post("/v1/conversations", json={"items": [{"role": "user", "content": "a"}]})).json()["id"]
    response_id = await left(first, second, conversation=path)
    await second.http.delete(f"/v1/conversations/{path}")
    refused = await second.http.get(f"{RESPONSES}/{response_id}", params={"stream": "true"})
    assert refused.status_code == 400
    assert (await second.http.get(f"{RESPONSES}/{response_id}")).json()["status"] == "in_progress"


async def test_one_in_a_conversation_is_gone_on_with(pair: tuple[Shim, Shim]) -> None:
    first, second = pair
    path = (await first.http.post("/v1/conversations", json={"items": [{"role": "user", "content": "a"}]})).json()["id"]
    response_id = await left(first, second, conversation=path)
    assert DONE in await told(second, response_id)
    items = (await second.http.get(f"/v1/conversations/{path}/items")).json()["data"]
    assert [item["role"] for item in items] == ["assistant", "user", "user"]


async def test_a_long_prompt_without_a_live_session_cannot_be_gone_on_with(
    runtime: ScriptedRuntime, tokenizer_dir: Path
) -> None:
    async with serving_shim(runtime, tokenizer_dir, "--max-append-tokens", "8") as shim:
        runtime.hold_after = 2
        body = {"input": "Hello", "max_output_tokens": 5, "stream": True}
        async with (
            serving_shim(runtime, tokenizer_dir) as other,
            shim.http.stream("POST", RESPONSES, json=body) as response,
        ):
            response_id = await begun(response.aiter_lines())
            refused = await other.http.get(f"{RESPONSES}/{response_id}", params={"stream": "true"})
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "stream")
            await shim.http.post(f"{RESPONSES}/{response_id}/cancel")
        await shim.nothing_left()
