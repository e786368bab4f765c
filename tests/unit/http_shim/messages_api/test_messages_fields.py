"""Every field of Anthropic's API is honoured, or has no effect that would be missed, or is refused by name."""

import json
from typing import Any

import pytest

from kakeya_http_shim.messages_api.messages_request import (
    CountTokensRequest,
    MessagesRequest,
    OutputConfig,
    Thinking,
)
from kakeya_http_shim.messages_api.messages_tools import CustomTool, ToolChoice
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.requests.fields import RequestModel
from tests.unit.http_shim.messages_api.asking import ask
from tests.unit.http_shim.shim import HELLO, Shim

WITHOUT_EFFECT: dict[str, Any] = {
    "cache_control": {"type": "ephemeral", "ttl": "1h"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "speed": "standard",
    "metadata": {"user_id": "user_1"},
    "user_profile_id": "profile_1",
    "workspace_id": "workspace_1",
    "service_tier": "auto",
    "diagnostics": {"previous_message_id": "msg_1"},
}


def kind(field: Any) -> object:
    assert isinstance(field.json_schema_extra, dict)
    return field.json_schema_extra["x-kakeya"]


async def test_what_has_no_effect(shim: Shim) -> None:
    shim.will_say("Hi!")
    assert (await ask(shim, **WITHOUT_EFFECT)).json()["content"] == [{"type": "text", "text": "Hi!"}]
    declared = {name for name, field in MessagesRequest.model_fields.items() if kind(field) == "without effect"}
    assert declared == WITHOUT_EFFECT.keys()


@pytest.mark.parametrize("model", [MessagesRequest, CountTokensRequest, Thinking, OutputConfig, CustomTool, ToolChoice])
def test_every_field_says_what_it_is(model: type[RequestModel]) -> None:
    for field in model.model_fields.values():
        assert kind(field)
        assert field.description
    assert not model.refused.keys() & model.model_fields.keys()


@pytest.mark.parametrize("field", sorted(MessagesRequest.refused))
async def test_what_is_not_served_is_refused_by_name(shim: Shim, field: str) -> None:
    response = await ask(shim, **{field: [{"a": 1}]})
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith(f"{field}: not supported: ")
    assert (await ask(shim, **{field: [], "max_tokens": 1})).status_code == 200, "an empty list says nothing"


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ({"type": "image", "source": {}}, "contents are texts"),
        ({"type": "document", "source": {}}, "contents are texts"),
        ({"type": "server_tool_use", "id": "1", "name": "web_search", "input": {}}, "no tool runs at this server"),
        ({"type": "web_search_tool_result"}, "no tool runs at this server"),
        ({"type": "mid_conv_system", "content": []}, "not served yet"),
        ({"type": "text", "text": "a", "citations": [{"type": "x"}]}, "nothing is cited"),
    ],
)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_blocks_that_are_not_served(role: str, block: dict[str, Any], why: str) -> None:
    field = "citations" if "citations" in block else "type"
    with pytest.raises(ApiError, match=rf"messages\[0\]\.content\[0\]\.{field}: not supported: {why}"):
        read(messages=[{"role": role, "content": [block]}])


def read(**fields: Any) -> MessagesRequest:
    return MessagesRequest.read(json.dumps({"messages": HELLO, "max_tokens": 1, **fields}).encode())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_tokens": None}, "max_tokens: Input should be a valid integer"),
        ({"max_tokens": 0}, "max_tokens: "),
        ({"messages": []}, "messages: "),
        (
            {"messages": [{"role": "tool", "content": "a"}]},
            r"messages\[0\].role: must be one of user, assistant, system",
        ),
        ({"messages": [{"role": ["user"], "content": "a"}]}, r"messages\[0\].role: must be one of"),
        ({"messages": [{"role": "user", "content": []}]}, r"messages\[0\].content: "),
        ({"messages": [{"role": "user", "content": [{"type": "what"}]}]}, r"messages\[0\].content\[0\].type: "),
        ({"messages": [{"role": "assistant", "content": [{"type": []}]}]}, r"messages\[0\].content\[0\].type: "),
        ({"temperature": 2.5}, "temperature: "),
        ({"thinking": {"type": "on"}}, "thinking.type: "),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema: Field required"),
        ({"output_config": {"format": {"type": "text"}}}, "output_config.format.type: "),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {}}}, "kakeya": {"regex": "a"}},
            "output_config: not together with kakeya.regex",
        ),
        ({"output_format": {"type": "json_schema"}}, "output_format: not supported: output_config.format is its name"),
        ({"speed": "fast"}, "speed: not supported: there is one"),
        ({"tool_choice": {"type": "what"}}, "tool_choice.type: "),
        ({"stop_sequences": [""]}, r"stop_sequences\[0\]: "),
        ({"what": 1}, "unknown field what"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ApiError, match=message) as raised:
        read(**fields)
    assert raised.value.status == 400
