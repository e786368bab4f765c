"""How many calls a request takes, and what is left of them."""

from pathlib import Path

import pytest

from tests.unit.http_shim.shim import CHAT, COMPLETIONS, HELLO, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
async def test_a_request_is_one_call(shim: Shim, stream: bool) -> None:
    assert (await shim.chat(stream=stream, max_tokens=1)).status_code == 200
    assert shim.runtime.calls == ["ListModels", "Turn"], "the models are known from then on"
    assert (await shim.complete(stream=stream, max_tokens=1)).status_code == 200
    assert shim.runtime.calls == ["ListModels", "Turn", "Turn"]
    await shim.nothing_left()


async def test_each_of_several_answers_is_one(shim: Shim) -> None:
    assert len((await shim.chat(n=3)).json()["choices"]) == 3
    assert shim.runtime.calls.count("Turn") == len(shim.runtime.calls) - 1 == 3


async def test_a_prompt_that_does_not_fit_one_append_goes_in_parts(
    runtime: ScriptedRuntime, tokenizer_dir: Path
) -> None:
    async with serving_shim(runtime, tokenizer_dir, "--max-append-tokens", "5") as shim:
        assert (await shim.http.post(COMPLETIONS, json={"prompt": "a" * 5, "max_tokens": 1})).status_code == 200
        runtime.calls.clear()
        assert (await shim.http.post(COMPLETIONS, json={"prompt": "a" * 11, "max_tokens": 1})).status_code == 200
        assert runtime.calls == ["CreateSession", "AppendTokens", "AppendTokens", "Turn"]
        await shim.nothing_left()


async def test_at_an_older_runtime_a_request_takes_several(shim: Shim) -> None:
    shim.runtime.has_turn = False
    for calls in (["ListModels", "Turn"], []):
        shim.runtime.calls.clear()
        assert (await shim.chat(max_tokens=1)).status_code == 200
        assert shim.runtime.calls == [*calls, "CreateSession", "AppendTokens", "Generate"]


async def test_a_stop_text_closes_the_session(shim: Shim) -> None:
    shim.will_say("one two three", ends=False)
    response = await shim.chat(stop="two", max_tokens=1000)
    assert response.json()["choices"][0]["message"]["content"] == "one "
    assert shim.runtime.calls[1:] == ["Turn", "CloseSession"], "so that its lane is free for the next request"
    await shim.nothing_left()


@pytest.mark.parametrize(("path", "param"), [(CHAT, "messages"), (COMPLETIONS, "prompt")])
async def test_what_a_turn_is_refused_for_is_named_as_the_request_has_it(shim: Shim, path: str, param: str) -> None:
    shim.runtime.before["Turn"].append(fails("INVALID_FIELD", field="spans", part="append"))
    question = {"prompt": "Once"} if path == COMPLETIONS else {"messages": HELLO}
    response = await shim.http.post(path, json=question)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)
