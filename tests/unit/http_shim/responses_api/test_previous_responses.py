"""A response that goes on from another one: its items are there, and its session, if that is."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kakeya_http_shim.conversations import tags
from kakeya_http_shim.conversations.fingerprints import fingerprint
from kakeya_http_shim.requests.messages import Message
from kakeya_http_shim.responses_api.kept.kept_response import KeptResponse
from tests.unit.http_shim.responses_api.asking import RESPONSES, answered, ask, put_together, texts, user
from tests.unit.http_shim.responses_api.asking import named as named_events
from tests.unit.http_shim.shim import CHAT, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.http_shim.talk import Told
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails


@pytest.fixture
async def live(runtime: ScriptedRuntime, tokenizer_dir: Path) -> AsyncIterator[Shim]:
    runtime.models[0].lane_token_count = 4096
    async with serving_shim(runtime, tokenizer_dir, "--live-sessions", "on") as shim:
        yield shim


async def says(shim: Shim, text: Any, before: str | None, answer: str = "Yes.", **fields: Any) -> tuple[Told, Any]:
    """What an answer says of its session, and the response."""
    shim.will_say(answer)
    response = await ask(shim, input=text, previous_response_id=before, **fields)
    return Told.by(response), response.json()


async def test_each_turn_appends_its_own_tokens(live: Shim) -> None:
    told, first = await says(live, "Hello", None)
    assert (told.short, first["previous_response_id"]) == (("new", "first-turn"), None)
    before, session = first["id"], told.id
    for number in range(5):
        told, response = await says(live, f"And {number}?", before)
        behind = f"\n<|im_start|>user\nAnd {number}?<|im_end|>\n<|im_start|>assistant\n"
        assert (told.short, told.id, told.appended) == (("continued", "next-turn"), session, len(live.tokens(behind)))
        assert response["previous_response_id"] == before
        assert response["usage"]["kakeya"]["session"] == vars(told)
        before = response["id"]
    items = (await live.http.get(f"{RESPONSES}/{before}/input_items?order=asc&limit=100")).json()["data"]
    assert [item["role"] for item in items] == ["user", *["assistant", "user"] * 5]


async def test_what_an_earlier_response_had_is_not_hashed_again(live: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Message] = []

    def looked_into(message: Message) -> bytes:
        hashed.append(message)
        return fingerprint(message)

    monkeypatch.setattr(tags, "fingerprint", looked_into)
    numbers: list[int] = []
    said: list[Any] = [user(f"{number}") for number in range(60)]
    before = None
    for _ in range(5):
        _, response = await says(live, said, before, instructions="Be kind.")
        said, before = [user("And?")], response["id"]
        numbers.append(len(hashed))
        hashed.clear()
    assert numbers[0] > 60, "all of them, once"
    assert max(numbers[2:]) < 10, numbers


async def test_a_stream_goes_on_too(live: Shim) -> None:
    _, first = await says(live, "Hello", None)
    live.will_say("Well.")
    response = await ask(live, input="And?", previous_response_id=first["id"], stream=True)
    assert Told.by(response).short == ("continued", "next-turn")
    assert texts(put_together(named_events(response.text))) == ["Well."]


async def test_an_older_place_forks(live: Shim) -> None:
    told, first = await says(live, "Hello", None)
    await says(live, "One?", first["id"])
    other, _ = await says(live, "Two?", first["id"])
    assert other.short == ("forked", "earlier-place")
    assert (other.id != told.id, other.appended) == (True, len(live.tokens(_behind("Two?"))))


def _behind(text: str) -> str:
    return f"\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


async def test_a_session_that_is_gone_is_rebuilt_from_what_is_stored(live: Shim, runtime: ScriptedRuntime) -> None:
    first, response = await says(live, "Hello", None)
    runtime.sessions.clear()
    told, _ = await says(live, "And?", response["id"])
    assert told.short == ("new", "not-found")
    said = [user("Hello"), {"role": "assistant", "content": "Yes."}, user("And?")]
    assert told.appended == len(live.tokenizer.prompt(said))
    assert told.id != first.id


async def test_instructions_are_not_inherited(live: Shim) -> None:
    _, first = await says(live, "Hello", None, instructions="Be kind.")
    told, second = await says(live, "And?", first["id"])
    assert (told.short, second["instructions"]) == (("new", "not-found"), None)
    history = live.tokenizer.decode(live.runtime.sessions[told.id].history, special_tokens=True)
    assert "Be kind." not in history
    told, _ = await says(live, "And?", first["id"], instructions="Be kind.")
    assert told.short == ("continued", "next-turn")


async def test_a_chat_goes_on_from_it(live: Shim) -> None:
    told, first = await says(live, "Hello", None)
    chat = [user("Hello"), {"role": "assistant", "content": texts(first)[0]}, user("And?")]
    live.will_say("Well.")
    assert Told.by(await live.http.post(CHAT, json={"messages": chat, "max_tokens": 50})).id == told.id


async def test_results_of_functions_alone(live: Shim) -> None:
    call = {"type": "function_call", "call_id": "abcdefghi", "name": "f", "arguments": "{}"}
    _, first = await says(live, "Hello", None)
    stored = KeptResponse.unpacked(live.runtime.objects[first["id"]])
    called = {**stored.response, "output": [{**call, "id": "fc_1", "status": "completed"}]}
    live.runtime.objects[first["id"]] = KeptResponse(called, stored.items).packed()
    result = {"type": "function_call_output", "call_id": "abcdefghi", "output": "Sun"}
    _, second = await says(live, [result], first["id"])
    kept = KeptResponse.unpacked(live.runtime.objects[second["id"]])
    assert [item["type"] for item in kept.items] == ["message", "function_call", "function_call_output"]


async def test_a_long_conversation_behind_a_short_request(live: Shim) -> None:
    said = [user(str(number)) for number in range(20)]
    _, first = await says(live, said, None)
    told, _ = await says(live, "And?", first["id"])
    assert told.short == ("continued", "next-turn")


async def test_what_cannot_be_gone_on_from(live: Shim) -> None:
    unknown = f"resp_{'0' * 32}"
    for previous in (unknown, "resp_1"):
        error = (await ask(live, previous_response_id=previous)).json()["error"]
        assert (error["param"], error["code"]) == ("previous_response_id", "previous_response_not_found")
    _, first = await says(live, "Hello", None)
    kept = KeptResponse.unpacked(live.runtime.objects[first["id"]])
    broken = [
        KeptResponse({**kept.response, "status": "in_progress"}, kept.items),
        KeptResponse({**kept.response, "status": "failed"}, kept.items),
        KeptResponse({**kept.response, "output": [{"type": "nonsense"}]}, kept.items),
    ]
    for each in broken:
        live.runtime.objects[first["id"]] = each.packed()
        response = await ask(live, previous_response_id=first["id"])
        error = response.json()["error"]
        assert (response.status_code, error["param"], error["code"]) == (400, "previous_response_id", "invalid_value")
    live.runtime.objects[first["id"]] = kept.packed()
    error = (await ask(live, previous_response_id=first["id"], input=[])).json()["error"]
    assert error["param"] == "input"


async def test_a_runtime_that_fails(live: Shim) -> None:
    live.runtime.before["FetchObject"].append(fails("PERMISSION_DENIED"))
    response = await ask(live, previous_response_id=f"resp_{'0' * 32}")
    assert response.status_code == 403


async def test_an_answer_that_was_cut_is_gone_on_from(live: Shim) -> None:
    live.will_say("cut", ends=False)
    first = await answered(live, max_output_tokens=3)
    assert first["status"] == "incomplete"
    told, _ = await says(live, "And?", first["id"])
    assert told.short == ("continued", "next-turn")
