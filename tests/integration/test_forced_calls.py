"""Calls that are forced, of kakeya-nano, which has not learned to call: whatever it draws, they are valid ones."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import openai
import pytest

from kakeya_http_shim.tools.families import SYNTAXES
from kakeya_shared import installed_models
from tests.integration.open_http import MODEL
from tests.integration.processes import Runtime, runtime

_TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}{% endfor %}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_NUM_SEEDS = 8
_MAX_TOKENS = 160
BOOK: dict[str, Any] = {
    "type": "object",
    "properties": {
        "class": {"type": "string", "enum": ["first", "second"]},
        "seats": {"type": "integer", "minimum": 1, "maximum": 99},
        "days": {"type": "array", "items": {"$ref": "#/$defs/Day"}, "maxItems": 2},
    },
    "required": ["class", "seats"],
    "additionalProperties": False,
    "$defs": {"Day": {"type": "string", "enum": ["mon", "tue"]}},
}
PAY: dict[str, Any] = {
    "type": "object",
    "properties": {"is_cash": {"type": "boolean"}},
    "required": ["is_cash"],
    "additionalProperties": False,
}
SCHEMAS = {"book": BOOK, "pay": PAY}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()
]
NAMED: Any = {"type": "function", "function": {"name": "pay"}}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """A shim for each family, in the order of their names."""
    directory = tmp_path_factory.mktemp("forced")
    model = directory / MODEL
    shutil.copytree(installed_models.directory(MODEL), model)
    config = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": _TEMPLATE}))
    with runtime(model, directory, num_workers=0) as stack:
        stack.start_worker("--weights=int8", "--window=768", lanes=8)
        stack.wait_for_workers(1)
        for family in sorted(SYNTAXES):
            stack.start_http(f"--tool-parser={MODEL}={family}", f"--tokenizer={MODEL}={model}")
        yield stack


@pytest.mark.parametrize("family", sorted(SYNTAXES))
def test_whatever_is_drawn_is_a_call(made: Runtime, family: str) -> None:
    address = made.shims[sorted(SYNTAXES).index(family)].address
    num_ended, num_named, names = 0, 0, set[str]()
    with openai.OpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0) as client:
        for seed in range(_NUM_SEEDS):
            for choice in ("required", NAMED):
                answer = client.chat.completions.create(
                    model=MODEL,
                    messages=[{"role": "user", "content": "A ticket!"}],
                    tools=TOOLS,
                    tool_choice=choice,
                    parallel_tool_calls=choice != NAMED,
                    temperature=1.0,
                    seed=seed,
                    max_tokens=_MAX_TOKENS,
                )
                (said,) = answer.choices
                calls = [call.function for call in said.message.tool_calls or () if call.type == "function"]
                for call in calls:
                    jsonschema_rs.validate(SCHEMAS[call.name], json.loads(call.arguments))
                names |= {call.name for call in calls}
                if answer.usage is not None and answer.usage.completion_tokens < _MAX_TOKENS:
                    num_ended += 1
                    assert (bool(calls), said.message.content, said.finish_reason) == (True, None, "tool_calls")
                    if choice == NAMED:
                        num_named += 1
                        assert [call.name for call in calls] == ["pay"]
    assert num_named == _NUM_SEEDS, "a short call ends"
    assert num_ended >= 1.5 * _NUM_SEEDS
    assert names == {"book", "pay"}
