"""Items of what a model thinks."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.http_shim.responses_api.asking import answered, ask, events, named, put_together, texts, user
from tests.unit.http_shim.shim import Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.http_shim.talk import Told
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

TEMPLATE = tiny_tokenizer.TEMPLATE + (
    "{% if add_generation_prompt and enable_thinking is defined and not enable_thinking %}"
    "<think></think>{% endif %}{# what is thought of #}"
)
SAID = "<think>hm</think>Yes."


@pytest.fixture
async def thinker(runtime: ScriptedRuntime, tmp_path: Path) -> AsyncIterator[Shim]:
    """Its model thinks unless it is told not to."""
    tiny_tokenizer.save(tmp_path, template=True)
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    async with serving_shim(runtime, tmp_path, "--live-sessions", "on") as shim:
        yield shim


async def test_thoughts_come_before_the_text(thinker: Shim) -> None:
    thinker.will_say(SAID, SAID)
    whole = await answered(thinker)
    thought, message = whole["output"]
    assert thought.pop("id").startswith("rs_")
    content = [{"type": "reasoning_text", "text": "hm"}]
    assert thought == {"type": "reasoning", "summary": [], "content": content, "encrypted_content": None}
    assert (message["type"], texts(whole)) == ("message", ["Yes."])
    told = await events(thinker, input="Hello!")
    kinds = [event["type"].removeprefix("response.") for event in told if "delta" in event]
    assert kinds == [*["reasoning_text.delta"] * 2, *["output_text.delta"] * 4]
    assert texts(put_together(told)) == ["Yes."]


async def test_tokens_of_thoughts_are_counted(thinker: Shim) -> None:
    thinker.will_say(SAID, "Yes.", "<think>hm, hm", ends=True)
    usage = (await answered(thinker))["usage"]
    num_thought = len(thinker.tokens("<think>hm</think>"))
    assert usage["output_tokens_details"] == {"reasoning_tokens": num_thought}
    assert usage["output_tokens"] == num_thought + len(thinker.tokens("Yes.")) + 1
    without = await answered(thinker, input="Again", reasoning={"effort": "none"})
    assert without["usage"]["output_tokens_details"] == {"reasoning_tokens": 0}
    num_cut = 10
    cut = await answered(thinker, input="And again", max_output_tokens=num_cut)
    assert cut["usage"]["output_tokens_details"] == {"reasoning_tokens": num_cut}


async def test_an_answer_that_is_cut_within_its_thoughts(thinker: Shim) -> None:
    thinker.will_say("<think>hm, hm", ends=False)
    whole = await answered(thinker, max_output_tokens=12)
    (thought,) = whole["output"]
    assert (whole["status"], thought["content"][0]["text"]) == ("incomplete", "hm, h")
    thinker.will_say("Yes.")
    again = await ask(thinker, input=[user("Hello"), thought, user("Well?")])
    assert again.status_code == 200, "a thought alone is no answer"
    history = next(reversed(thinker.runtime.sessions.values())).history
    assert "hm, h" not in thinker.tokenizer.decode(history, special_tokens=True)
    thinker.will_say("<think>hm, hm", ends=False)
    streamed = put_together(await events(thinker, max_output_tokens=12))
    assert streamed["output"][0]["content"] == thought["content"]


async def test_an_answer_that_is_nothing_but_a_thought_has_an_empty_message(thinker: Shim) -> None:
    thinker.will_say("<think>hm</think>")
    assert [item["type"] for item in (await answered(thinker))["output"]] == ["reasoning", "message"]


@pytest.mark.parametrize("keeps", [True, False])
async def test_a_conversation_goes_on_with_its_thoughts_and_without(thinker: Shim, keeps: bool) -> None:
    thinker.will_say(SAID, "<think>well</think>No.")
    first = await ask(thinker)
    output = [item for item in first.json()["output"] if keeps or item["type"] != "reasoning"]
    other = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "c2VjcmV0"}
    second = await ask(thinker, input=[user("Hello"), other, *output, user("And?")])
    assert (Told.by(second).short, Told.by(second).id) == (("continued", "next-turn"), Told.by(first).id)


async def test_thoughts_come_encrypted_where_that_is_wanted(thinker: Shim) -> None:
    thought = "hm, what a greeting"  # letters enough not to be among those of a cipher by luck
    thinker.will_say(f"<think>{thought}</think>Yes.", f"<think>{thought}</think>Yes.", SAID)
    wanted = {"include": ["reasoning.encrypted_content"]}
    whole = await answered(thinker, **wanted)
    told = await events(thinker, input="Hello!", **wanted)
    (added, done) = [event["item"] for event in told if event.get("item", {}).get("type") == "reasoning"]
    assert added["encrypted_content"] is None
    for item in (whole["output"][0], done):
        assert len(item["encrypted_content"]) > 40
        assert thought not in item["encrypted_content"]
        assert item["content"] == [{"type": "reasoning_text", "text": thought}]
    assert (await ask(thinker, input=[*whole["output"], user("And?")])).status_code == 200  # it is passed over
    again = await thinker.http.get(f"/v1/responses/{told[0]['response']['id']}", params={"stream": "true"})
    assert named(again.text) == told
