"""Conversations that are compacted, and gone on with."""

import base64
from collections.abc import AsyncIterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx
import pytest

from kakeya.text.chat_tokenizer import TokenizerError
from kakeya_http_shim.conversations.chat import Conversation
from kakeya_http_shim.responses_api import compaction
from kakeya_http_shim.responses_api.compact_request import CompactedResponse
from kakeya_http_shim.routes import sealing
from kakeya_shared.process.service_process import StartError
from kakeya_shared.settings.addresses import HostPort
from tests.unit.http_shim.responses_api.asking import RESPONSES, ask, events, named, put_together, user
from tests.unit.http_shim.served import connected
from tests.unit.http_shim.shim import MODEL, Shim, data
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.http_shim.talk import Told
from tests.unit.sdk import families, tiny_tokenizer
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails

TEMPLATE_WITHOUT_END = (
    "{% for message in messages %}{{ message.role }} of {{ messages | length }}: {{ message.content }}\n{% endfor %}"
)
COMPACT = f"{RESPONSES}/compact"


@pytest.fixture
async def live(runtime: ScriptedRuntime, tokenizer_dir: Path) -> AsyncIterator[Shim]:
    async with serving_shim(runtime, tokenizer_dir, "--live-sessions", "on") as shim:
        yield shim


async def compact(shim: Shim, **fields: Any) -> httpx.Response:
    return await shim.http.post(COMPACT, json=fields)


async def compacted(shim: Shim, **fields: Any) -> Any:
    response = await compact(shim, **fields)
    assert response.status_code == 200, response.text
    CompactedResponse.model_validate_json(response.content, strict=True)
    return response.json()


async def says(shim: Shim, items: list[Any], text: str, answer: str = "Yes.", **fields: Any) -> Told:
    items.append(user(text))
    shim.will_say(answer)
    response = await ask(shim, input=items, **fields)
    assert response.status_code == 200, response.text
    items += response.json()["output"]
    return Told.by(response)


async def test_one_goes_on_in_its_session(live: Shim) -> None:
    items: list[Any] = []
    first = await says(live, items, "Hello")
    await says(live, items, "And?")
    answer = await compacted(live, input=items)
    (item,) = answer["output"]
    assert (answer["object"], item["type"]) == ("response.compaction", "compaction")
    (session,) = live.runtime.sessions.values()
    assert answer["kakeya"] == {
        "history": len(session.history),
        "retained": 20,
        "evicted": len(session.history) - 20,
        "session": first.id,
    }
    assert "Hello" not in item["encrypted_content"]
    told = await says(live, short := [*answer["output"]], "And then?")
    assert (told.short, told.id) == (("continued", "next-turn"), first.id)
    again = await says(live, short, "And now?")
    assert (again.short, again.id) == (("continued", "next-turn"), first.id)
    whole = await says(live, [*items, user("And then?"), *short[2:3]], "And now?")  # what was sent whole is the same
    assert (whole.short, whole.reused > 0) == (("forked", "regenerated"), True)


async def test_without_its_session_it_is_prefilled_from_what_was_retained(live: Shim) -> None:
    items: list[Any] = []
    await says(live, items, "Hello there, you there")
    await says(live, items, "And?")
    (old,) = live.runtime.sessions.values()
    history = [*old.history]
    answer = await compacted(live, input=items)
    live.runtime.sessions.clear()
    told = await says(live, short := [*answer["output"]], "Why?")
    assert told.short == ("new", "compacted")
    (session,) = live.runtime.sessions.values()
    behind = live.tokens("\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n")
    assert session.history[: 20 + len(behind)] == [*history[:4], *history[-16:], *behind]
    again = await says(live, short, "And now?")
    assert again.short == ("continued", "next-turn")
    twice = await compacted(live, input=short)
    assert twice["kakeya"]["history"] == len(session.history)
    live.runtime.sessions.clear()
    assert (await says(live, [*twice["output"]], "So?")).short == ("new", "compacted")


async def test_instructions_are_sent_again(live: Shim, runtime: ScriptedRuntime) -> None:
    runtime.models[0].lane_token_count = 4096
    items: list[Any] = [{"role": "developer", "content": "Be brief."}]
    first = await says(live, items, "Hello", instructions="Be kind.")
    answer = await compacted(live, input=items, instructions="Be kind.")
    same = await says(live, [*answer["output"]], "And?", instructions="Be kind.")
    assert (same.short, same.id) == (("continued", "next-turn"), first.id)
    other = await says(live, [*answer["output"]], "And?", instructions="Be rude.")
    assert other.short == ("new", "compacted")
    assert other.id != first.id


async def test_what_a_tool_answered_last_stays(live: Shim, runtime: ScriptedRuntime) -> None:
    runtime.models[0].lane_token_count = 4096
    call = {"type": "function_call", "call_id": "abcdefghi", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "abcdefghi", "output": "Sun"}
    answer = await compacted(live, input=[user("Hello"), call, result])
    live.will_say("Sunny.")
    response = await ask(live, input=answer["output"])
    assert response.status_code == 200, response.text
    assert Told.by(response).short == ("new", "compacted")
    text = live.tokenizer.decode(live.runtime.requests["AppendTokens"][-1].token_ids)
    assert "Sun" in text


async def test_what_was_not_answered_yet_is_there_as_a_whole(live: Shim) -> None:
    answer = await compacted(live, input="Hello")
    assert answer["kakeya"]["evicted"] == 0
    live.will_say("Hi")
    response = await ask(live, input=answer["output"])
    assert response.status_code == 200
    same = await ask(live, input="Hello")
    assert Told.by(same).why == "regenerated"


async def test_of_a_stored_response(live: Shim) -> None:
    live.will_say("Hi", "Yes.", "No.")
    first = (await ask(live)).json()
    answer = await compacted(live, previous_response_id=first["id"])
    second = (await ask(live, input=[*answer["output"], user("And?")])).json()
    assert second["usage"]["kakeya"]["session"]["state"] == "continued"
    third = await ask(live, previous_response_id=second["id"], input="So?")
    assert Told.by(third).short == ("continued", "next-turn")
    more = await compacted(live, previous_response_id=first["id"], input="More")
    assert more["kakeya"]["session"] is not None
    assert (await compact(live)).status_code == 400


async def test_items_before_it_are_passed_over(live: Shim) -> None:
    items: list[Any] = []
    first = await says(live, items, "Hello")
    answer = await compacted(live, input=items)
    told = await says(live, [user("gone"), *answer["output"]], "And?")
    assert (told.short, told.id) == (("continued", "next-turn"), first.id)


@pytest.mark.parametrize("content", ["", "é", "AAAA", "AQ==" * 40])
async def test_what_was_not_made_here_is_refused(live: Shim, content: str) -> None:
    refused = await ask(live, input=[{"type": "compaction", "encrypted_content": content}, user("And?")])
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "invalid_encrypted_content"


async def test_what_was_changed_is_refused(live: Shim) -> None:
    (item,) = (await compacted(live, input="Hello"))["output"]
    content = item["encrypted_content"]
    for changed in (content[:-8] + "AAAAAAAA", content[:24], content[:2] + "BBBB" + content[6:]):
        refused = await ask(live, input=[{**item, "encrypted_content": changed}, user("And?")])
        assert refused.json()["error"]["param"] == "input[0].encrypted_content"


async def test_another_server_reads_it_by_the_key_that_the_runtime_keeps(
    runtime: ScriptedRuntime, tokenizer_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_shim(runtime, tokenizer_dir) as first, serving_shim(runtime, tokenizer_dir) as second:
        one, other = [(await compacted(first, input="Hello"))["output"] for _ in range(2)]
        assert len([name for name in runtime.objects if name.startswith("seal_")]) == 1
        second.will_say("Hi", "Hi")
        for item in (one, other):
            assert (await ask(second, input=item)).status_code == 200
        assert runtime.calls.count("FetchObject") == 1
        monkeypatch.setattr(sealing, "RENEW_SECONDS", 0.0)
        monkeypatch.setattr(sealing, "MAX_KEYS", 1)
        third = (await compacted(first, input="Hello"))["output"]
        second.will_say("Hi")
        assert (await ask(second, input=third)).status_code == 200
        await second.nothing_left()
        runtime.objects.clear()
        assert (await ask(second, input=one)).status_code == 400
        for call, fields in (("StoreObject", {}), ("FetchObject", {"input": one})):
            runtime.before[call].append(fails("QUOTA_EXCEEDED"))
            failed = await (compact(first, input="Hello") if call == "StoreObject" else ask(second, **fields))
            assert failed.status_code == 429


async def test_with_a_key_of_a_file_nothing_is_kept(
    runtime: ScriptedRuntime, tokenizer_dir: Path, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("a secret that has more than thirty-two letters")
    flags = ("--signing-key-file", str(key))
    async with (
        serving_shim(runtime, tokenizer_dir, *flags) as first,
        serving_shim(runtime, tokenizer_dir, *flags) as second,
        serving_shim(runtime, tokenizer_dir) as third,
    ):
        item = (await compacted(first, input="Hello"))["output"]
        assert runtime.objects == {}
        second.will_say("Hi")
        assert (await ask(second, input=item, store=False)).status_code == 200
        assert (await ask(third, input=item)).status_code == 400
        await second.nothing_left()


async def test_a_runtime_that_cannot_be_asked(live: Shim) -> None:
    items: list[Any] = []
    await says(live, items, "Hello")
    live.runtime.before["FindSession"].append(fails("PERMISSION_DENIED"))
    assert (await compact(live, input=items)).status_code == 403


async def test_an_answer_begins_with_a_compaction_where_that_is_wanted(live: Shim) -> None:
    items: list[Any] = []
    first = await says(live, items, "Hello", context_management=[{"type": "compaction", "compact_threshold": 1000}])
    assert [item["type"] for item in items[1:]] == ["message"]
    wish = {"context_management": [{"type": "compaction"}]}
    for text in ("And?", ""):
        items.append(user(text or "So?"))
        live.will_say(text)
        told = await events(live, input=items, **wish)
        response = put_together(deepcopy(told))
        assert [item["type"] for item in response["output"]] == ["compaction", "message"]
        again = await live.http.get(f"{RESPONSES}/{response['id']}", params={"stream": "true"})
        assert named(again.text) == told
        items = [*response["output"]]
        assert response["usage"]["kakeya"]["session"]["id"] == first.id
    live.will_say("Yes.", "Yes.")
    plain = await ask(live, input=[*items, user("Now?")], **wish)
    assert Told.by(plain).short == ("continued", "next-turn")
    assert plain.json()["output"][0]["type"] == "compaction"
    on = await ask(live, previous_response_id=plain.json()["id"], input="On?")
    assert Told.by(on).short == ("continued", "next-turn")


async def test_another_server_goes_on_with_one_that_begins_with_a_compaction(
    runtime: ScriptedRuntime, tokenizer_dir: Path
) -> None:
    flags = ("--live-sessions", "on")
    async with (
        serving_shim(runtime, tokenizer_dir, *flags) as first,
        serving_shim(runtime, tokenizer_dir, *flags) as second,
    ):
        runtime.hold_after = 2
        wish = {"type": "compaction", "compact_threshold": 1}
        body = {"input": "Hello", "max_output_tokens": 5, "stream": True, "context_management": [wish]}
        body |= {"include": ["reasoning.encrypted_content"]}
        async with first.http.stream("POST", RESPONSES, json=body) as response:
            said = ""
            async for piece in response.aiter_text():
                said += piece
                if "output_text.delta" in said:
                    break
            runtime.hold_after = None
            response_id = data(said.splitlines())[0]["response"]["id"]
            again = await second.http.get(f"{RESPONSES}/{response_id}", params={"stream": "true"})
        told = named(again.text)
        assert [item["type"] for item in put_together(told)["output"]] == ["compaction", "message"]
        assert again.text.startswith(said[: said.rindex("\n\n")])


@pytest.mark.parametrize("template", ["{{ messages[0].content }}", TEMPLATE_WITHOUT_END])
async def test_a_template_that_writes_the_past_anew_is_not_compacted(
    runtime: ScriptedRuntime, tmp_path: Path, template: str
) -> None:
    tiny_tokenizer.save(tmp_path, template=True)
    (tmp_path / "chat_template.jinja").write_text(template)
    async with serving_shim(runtime, tmp_path, "--live-sessions", "on") as shim:
        items = [user("Hello"), {"role": "assistant", "content": "Hi"}, user("And?")]
        refused = await compact(shim, input=items)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "not_compactable")


async def test_tokens_of_another_tokenizer_are_refused(
    runtime: ScriptedRuntime, tokenizer_dir: Path, tmp_path: Path
) -> None:
    families.save(tmp_path, families.ONES["qwen2_5"])
    key = tmp_path / "key"
    key.write_text("a secret that has more than thirty-two letters")
    flags = ("--signing-key-file", str(key), "--live-sessions", "on")
    runtime.models[0].lane_token_count = 4096
    items: list[Any] = []
    async with serving_shim(runtime, tokenizer_dir, *flags) as first, serving_shim(runtime, tmp_path, *flags) as second:
        await says(first, items, "Hello")
        answer = await compacted(first, input=items)
        refused = await ask(second, input=[*answer["output"], user("And?")])
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "model")


async def test_one_of_another_version_is_refused(live: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in (2, None):
        monkeypatch.setattr(compaction, "_VERSION", version)
        (item,) = (await compacted(live, input="Hello"))["output"]
        monkeypatch.setattr(compaction, "_VERSION", 1)
        if version is None:
            monkeypatch.setattr(compaction.Compaction, "packed", lambda _: b"{}")
            (item,) = (await compacted(live, input="Hello"))["output"]
        refused = await ask(live, input=[item, user("And?")])
        assert refused.json()["error"]["code"] == "invalid_encrypted_content"


async def test_a_client_that_leaves_before_it_has_asked(live: Shim) -> None:
    async with connected(HostPort("127.0.0.1", live.port)) as client:
        head = "Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 9"
        await client.send(f"POST {COMPACT} HTTP/1.1\r\n{head}\r\n\r\n{{")
    assert (await live.http.get("/healthz")).status_code == 200


async def test_a_template_that_writes_the_past_anew_by_now(
    runtime: ScriptedRuntime, tokenizer_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "template.jinja").write_text(TEMPLATE_WITHOUT_END)
    (tmp_path / "key").write_text("a secret that has more than thirty-two letters")
    flags = ("--signing-key-file", str(tmp_path / "key"), "--live-sessions", "on")
    other = ("--chat-template", f"{MODEL}={tmp_path / 'template.jinja'}")
    async with (
        serving_shim(runtime, tokenizer_dir, *flags) as first,
        serving_shim(runtime, tokenizer_dir, *flags, *other) as second,
    ):
        items: list[Any] = []
        await says(first, items, "Hello")
        answer = await compacted(first, input=items)
        refused = await ask(second, input=[*answer["output"], user("And?")])
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "not_compactable")


async def test_a_template_that_writes_no_head(live: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused at the start is no template that a request could fail with here."""

    def fail(*_: Any, **__: Any) -> None:
        raise TokenizerError("no head")

    monkeypatch.setattr(Conversation, "of", fail)
    assert (await compact(live, input="Hello")).json()["error"]["code"] == "not_compactable"


async def test_keys_that_are_none(runtime: ScriptedRuntime, tokenizer_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "short").write_text("short")
    for name, why in (("short", "no key"), ("absent", "No such file")):
        with pytest.raises(StartError, match=why):
            async with serving_shim(runtime, tokenizer_dir, "--signing-key-file", str(tmp_path / name)):
                pass


def test_what_is_too_large_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    seal = sealing.Seal.of(b"n" * 16, b"k" * 32)
    text = base64.urlsafe_b64decode(seal.sealed(b"long enough", "this"))[17:]
    assert seal.opened(text, "this") == b"long enough"
    with pytest.raises(sealing.Unsealable):
        seal.opened(text, "that")
    monkeypatch.setattr(sealing, "_MAX_BYTES", 4)
    with pytest.raises(sealing.Unsealable):
        seal.opened(text, "this")
