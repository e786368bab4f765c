"""What Anthropic's messages are as those of a chat."""

import json
from typing import Any

import pytest

from kakeya_http_shim.messages_api.as_chat import chat_request
from kakeya_http_shim.messages_api.messages_request import CountTokensRequest, MessagesRequest
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.requests.messages import MAX_MESSAGES

HELLO = {"role": "user", "content": "Hello"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1, "b": [2.5, "é"]}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "3.5"}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "whose?"}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said, "cache_control": {"type": "ephemeral"}}


def chat_of(*messages: Any, **fields: Any) -> list[dict[str, Any]]:
    """The messages of the chat, without what they do not say."""
    given = MessagesRequest.model_validate({"messages": [*messages], "max_tokens": 1, **fields})
    return [message.model_dump(exclude_none=True) for message in chat_request(given).messages]


def test_a_text_and_a_block_are_the_same() -> None:
    assert chat_of(HELLO) == chat_of({"role": "user", "content": [text("Hello")]}) == [HELLO]


def test_what_one_role_says_in_a_row_is_one_message() -> None:
    answer = {"role": "assistant", "content": "Hi"}
    assert chat_of(HELLO, {"role": "user", "content": [text("you"), text("!")]}, answer, answer, HELLO) == [
        {"role": "user", "content": [{"type": "text", "text": said} for said in ("Hello", "you", "!")]},
        {"role": "assistant", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "Hi"}]},
        HELLO,
    ]


def test_an_empty_answer_stays_where_it_was() -> None:
    assert chat_of(HELLO, {"role": "assistant", "content": []}, HELLO) == [HELLO, {"role": "assistant"}, HELLO]


def test_calls_and_their_results() -> None:
    said = {"role": "assistant", "content": [THOUGHT, text("I add."), CALL, {**CALL, "id": "toolu_2", "input": {}}]}
    results = [RESULT, {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": True}, text("Go on.")]
    function = {"name": "add", "arguments": '{"a": 1, "b": [2.5, "é"]}'}
    assert chat_of(HELLO, said, {"role": "user", "content": results}) == [
        HELLO,
        {
            "role": "assistant",
            "content": "I add.",
            "reasoning_content": "Hm.",
            "tool_calls": [
                {"id": "toolu_1", "type": "function", "function": function},
                {"id": "toolu_2", "type": "function", "function": {"name": "add", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "toolu_1", "content": "3.5"},
        {"role": "tool", "tool_call_id": "toolu_2", "content": ""},
        {"role": "user", "content": "Go on."},
    ]


def test_a_result_of_several_texts() -> None:
    answered = {**RESULT, "content": [text("3"), text(".5")]}
    (message,) = chat_of({"role": "user", "content": [answered]})
    assert message["content"] == [{"type": "text", "text": "3"}, {"type": "text", "text": ".5"}]


@pytest.mark.parametrize("system", ["", [], [text("")], "x-anthropic-billing-header: cch=1;"])
def test_no_system_prompt(system: Any) -> None:
    assert chat_of(HELLO, {"role": "system", "content": system}, system=system) == [HELLO]


def test_instructions_at_the_beginning_and_further_down() -> None:
    later = {"role": "system", "content": [text("Be brief.")]}
    billing = text("x-anthropic-billing-header: cc_version=2.1; cch=0aaa9;")
    assert chat_of(HELLO, later, system=[billing, text("Be kind."), text("Be quick.")]) == [
        {"role": "system", "content": [{"type": "text", "text": each} for each in ("Be kind.", "Be quick.")]},
        HELLO,
        {"role": "system", "content": "Be brief."},
    ]


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "assistant", "content": ""}],
        [{"role": "assistant", "content": []}],
        [{"role": "system", "content": ""}],
    ],
)
def test_nothing_to_answer(messages: Any) -> None:
    with pytest.raises(ApiError, match="there is nothing to answer") as raised:
        chat_of(*messages)
    assert (raised.value.status, raised.value.param) == (400, "messages")


def test_a_call_is_answered_by_its_result_first() -> None:
    with pytest.raises(ApiError, match="what they answered is to follow"):
        chat_of(HELLO, {"role": "assistant", "content": [text("I add."), CALL]})


def test_more_messages_than_a_chat_may_have() -> None:
    results = {"role": "user", "content": [RESULT] * (MAX_MESSAGES // 2 + 1)}
    with pytest.raises(ApiError, match=r"messages: .* at most 10000") as raised:
        chat_of(results, results)
    assert raised.value.status == 400


@pytest.mark.parametrize(
    ("thinking", "thinks"),
    [
        (None, False),
        ({"type": "disabled"}, False),
        ({"type": "enabled", "budget_tokens": 1024}, True),
        ({"type": "adaptive", "display": "omitted"}, True),
    ],
)
def test_whether_it_thinks(thinking: Any, thinks: bool) -> None:
    given = CountTokensRequest.model_validate({"messages": [HELLO], "thinking": thinking})
    chat = chat_request(given)
    assert (chat.enable_thinking, chat.thinking_budget) == (thinks, (thinking or {}).get("budget_tokens"))


def test_a_tool_that_is_referred_to_is_told_where_that_is() -> None:
    add = {"name": "add", "description": "A sum: é", "input_schema": {"type": "object"}, "defer_loading": True}
    reference = {"type": "tool_reference", "tool_name": "add"}
    found = {**RESULT, "content": [text("Found:"), reference]}
    asked = [HELLO, {"role": "assistant", "content": [CALL]}, {"role": "user", "content": [found]}]
    *_, result = chat_of(*asked, tools=[add])
    heading, told = result["content"]
    function = {"name": "add", "description": "A sum: é", "parameters": {"type": "object"}}
    assert heading == {"type": "text", "text": "Found:"}
    assert json.loads(told["text"]) == {"type": "function", "function": function}
    assert "é" in told["text"]
    with pytest.raises(ApiError, match="a tool_reference names 'add', which is none of tools"):
        chat_of(*asked)


def test_tools_that_are_deferred_are_not_told_at_the_beginning() -> None:
    tools: list[Any] = [
        {"name": name, "input_schema": {}, "defer_loading": name == "later"} for name in ("now", "later")
    ]
    given = MessagesRequest.model_validate({"messages": [HELLO], "max_tokens": 1, "tools": tools})
    chat = chat_request(given)
    assert [each["function"]["name"] for each in chat.offered or ()] == ["now", "later"]
    assert [each["function"]["name"] for each in chat.told or ()] == ["now"]
    only = MessagesRequest.model_validate({"messages": [HELLO], "max_tokens": 1, "tools": tools[1:]})
    assert (chat_request(only).told, len(chat_request(only).offered or ())) == (None, 1)


def test_how_hard_the_model_tries_from_a_message_on_changes_nothing() -> None:
    later = {"role": "system", "content": "Be brief.", "output_config": {"effort": "medium"}}
    assert chat_of(HELLO, later) == [HELLO, {"role": "system", "content": "Be brief."}]
