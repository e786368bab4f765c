"""Answers in a form: what the runtime is asked for, and what a client is told where that cannot be had."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken

from kakeya_stubs.v1 import runtime_pb2 as pb
from tests.unit.http_shim.messages_api.asking import ask as ask_messages
from tests.unit.http_shim.messages_api.asking import count
from tests.unit.http_shim.shim import HELLO, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails

SCHEMA = {"type": "object", "properties": {"é": {"type": "integer"}, "a": {"type": "string"}}}


def of_schema(**fields: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "form", **fields}}}


CHOICE = pb.Grammar(choice=pb.Grammar.Choice(texts=["yes", "no"]))
ANY_OBJECT = pb.Grammar(json_schema='{"type": "object"}')


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({"response_format": {"type": "json_object"}}, ANY_OBJECT),
        (of_schema(), ANY_OBJECT),
        (of_schema(schema=None, strict=True), ANY_OBJECT),
        (of_schema(schema=SCHEMA, description="d"), pb.Grammar(json_schema=json.dumps(SCHEMA, ensure_ascii=False))),
        (of_schema(schema={}), pb.Grammar(json_schema="{}")),
        ({"kakeya": {"regex": "a+"}}, pb.Grammar(regex="a+")),
        ({"kakeya": {"choice": ["yes", "no"]}, "response_format": {"type": "text"}}, CHOICE),
        ({"kakeya": {"grammar": "start: /a/"}}, pb.Grammar(lark="start: /a/")),
    ],
)
async def test_what_the_runtime_is_asked_for(shim: Shim, fields: dict[str, Any], sent: pb.Grammar) -> None:
    shim.will_say("Hi!")
    response = await shim.chat(**fields)
    assert response.status_code == 200, response.text
    request = shim.runtime.requests["Generate"][0]
    assert request.grammar == sent
    assert not request.HasField("reasoning")


@pytest.mark.parametrize("fields", [{}, {"response_format": {"type": "text"}}, {"kakeya": {"on_overflow": "evict"}}])
async def test_what_is_not_asked_for_is_not_sent(shim: Shim, fields: dict[str, Any]) -> None:
    shim.will_say("Hi!")
    assert (await shim.chat(**fields)).status_code == 200
    assert not shim.runtime.requests["Generate"][0].HasField("grammar")


async def test_completions_have_forms_too(shim: Shim) -> None:
    shim.will_say("yes")
    assert (await shim.complete(kakeya={"choice": ["yes", "no"]})).json()["choices"][0]["text"] == "yes"
    assert shim.runtime.requests["Generate"][0].grammar == CHOICE


async def test_what_has_a_form_has_an_end(shim: Shim) -> None:
    """It is said before anything is: a stream that has begun, with its prompt, has a status already."""
    response = await shim.complete(echo=True, stream=True, ignore_eos=True, kakeya={"choice": ["yes", "no"]})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "ignore_eos"
    assert "Generate" not in shim.runtime.requests


async def test_messages_have_one_too(shim: Shim) -> None:
    fields = {"output_config": {"effort": "high", "format": {"type": "json_schema", "schema": SCHEMA}}}
    shim.will_say("{}")
    assert (await ask_messages(shim, **fields)).json()["content"] == [{"type": "text", "text": "{}"}]
    assert shim.runtime.requests["Generate"][0].grammar.json_schema == json.dumps(SCHEMA, ensure_ascii=False)
    assert await count(shim, **fields) == await count(shim)
    shim.runtime.before["Generate"].append(fails("INVALID_FIELD", field="grammar.json_schema"))
    response = await ask_messages(shim, **fields)
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("output_config.format: ")


@pytest.mark.parametrize(
    ("fields", "field", "param"),
    [
        (of_schema(schema=SCHEMA), "grammar.json_schema", "response_format"),
        ({"kakeya": {"regex": "("}}, "grammar.regex", "kakeya.regex"),
        ({"kakeya": {"choice": ["a"]}}, "grammar.choice", "kakeya.choice"),
        ({"kakeya": {"grammar": "a"}}, "grammar.lark", "kakeya.grammar"),
    ],
)
async def test_what_cannot_be_done_names_its_field(shim: Shim, fields: dict[str, Any], field: str, param: str) -> None:
    for ask in (shim.chat, shim.complete):
        shim.runtime.before["Generate"].append(fails("INVALID_FIELD", field=field))
        response = await ask(**fields)
        assert response.status_code == 400
        error = response.json()["error"]
        assert (error["param"], error["code"], error["type"]) == (param, "invalid_value", "invalid_request_error")


THINKING = tiny_tokenizer.TEMPLATE + "{# between <think> and </think> #}"


@pytest.fixture(params=["perhaps", "inside"])
async def thinker(
    runtime: ScriptedRuntime, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[Shim, str]]:
    """Whose marks are tokens, and how its answers begin."""
    tiny_tokenizer.save(tmp_path, template=True)
    tiny_tokenizer.add(tmp_path, *(AddedToken(tag, special=False, normalized=False) for tag in ("<think>", "</think>")))
    template = THINKING if request.param == "perhaps" else tiny_tokenizer.TEMPLATE + "<think>\n"
    (tmp_path / "chat_template.jinja").write_text(template)
    async with serving_shim(runtime, tmp_path) as shim:
        await shim.loaded()
        yield shim, request.param


@pytest.mark.parametrize(
    ("options", "bound"),
    [({"choice": ["yes"]}, 0), ({"choice": ["yes"], "max_reasoning_tokens": 7}, 7), ({"max_reasoning_tokens": 7}, 7)],
)
async def test_a_form_begins_behind_the_thought(thinker: tuple[Shim, str], options: dict[str, Any], bound: int) -> None:
    shim, thinking = thinker
    shim.will_say("hm</think>yes" if thinking == "inside" else "<think>hm</think>yes")
    message = (await shim.chat(kakeya=options)).json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("hm", "yes")
    (opens,), (closes,) = shim.tokens("<think>"), shim.tokens("</think>")
    begins = [] if thinking == "inside" else [opens]
    request = shim.runtime.requests["Generate"][0]
    assert request.reasoning == pb.Reasoning(end_token_ids=[closes], max_tokens=bound, begin_token_ids=begins)
    assert request.HasField("grammar") == ("choice" in options)


async def test_without_a_form_or_a_bound_nothing_is_said_of_thoughts(thinker: tuple[Shim, str]) -> None:
    shim, _ = thinker
    shim.will_say("yes")
    await shim.chat(kakeya={"on_overflow": "evict"})
    assert not shim.runtime.requests["Generate"][0].HasField("reasoning")
    shim.will_say("yes")
    await shim.complete(kakeya={"max_reasoning_tokens": 7, "regex": "yes"})
    assert not shim.runtime.requests["Generate"][1].HasField("reasoning"), "no chat"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"kakeya": {"regex": "a"}}, "kakeya.regex"),
        ({"kakeya": {"max_reasoning_tokens": 7}}, "kakeya.max_reasoning_tokens"),
    ],
)
async def test_marks_of_several_tokens_are_refused(
    runtime: ScriptedRuntime, tmp_path: Path, fields: dict[str, Any], param: str
) -> None:
    tiny_tokenizer.save(tmp_path, template=True)
    (tmp_path / "chat_template.jinja").write_text(THINKING)
    async with serving_shim(runtime, tmp_path) as shim:
        await shim.loaded()
        error = (await shim.chat(messages=HELLO, **fields)).json()["error"]
    assert (error["param"], error["code"]) == (param, "unsupported_parameter")
    assert "no tokens of their own" in error["message"]
