"""LangChain's ChatOpenAI, unmodified."""

from typing import Any

import openai
import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI

from tests.integration.http_stack import HttpStack, prompt_ids
from tests.integration.open_http import ENDLESS, MODEL

MESSAGES = [SystemMessage("Be brief."), HumanMessage("Hello")]
NUM_PROMPT_TOKENS = len(prompt_ids(("system", "Be brief."), ("user", "Hello")))
NUM_TOKENS = 16


@pytest.fixture
def model(http: HttpStack) -> ChatOpenAI:
    there: dict[str, Any] = {"base_url": http.base_url, "api_key": http.key, "max_retries": 0}
    cut: dict[str, Any] = {"max_tokens": NUM_TOKENS, "logit_bias": ENDLESS, "seed": 7}
    return ChatOpenAI(model=MODEL, stream_usage=True, **there, **cut)


def test_invoke_and_what_it_cost(model: ChatOpenAI) -> None:
    answer = model.invoke(MESSAGES)
    assert isinstance(answer, AIMessage)
    assert answer.text
    assert answer.response_metadata["finish_reason"] == "length"
    assert answer.response_metadata["model_name"] == MODEL
    assert answer.usage_metadata
    assert answer.usage_metadata["input_tokens"] == NUM_PROMPT_TOKENS
    assert answer.usage_metadata["output_tokens"] == NUM_TOKENS
    assert answer.usage_metadata["total_tokens"] == NUM_PROMPT_TOKENS + NUM_TOKENS


def test_a_stream_says_what_invoke_says(model: ChatOpenAI) -> None:
    whole = model.invoke(MESSAGES)
    pieces = list(model.stream(MESSAGES))
    assert len(pieces) > 5
    joined = pieces[0]
    for piece in pieces[1:]:
        assert isinstance(piece, AIMessageChunk)
        joined += piece
    assert joined.text == whole.text
    assert joined.usage_metadata == whole.usage_metadata
    assert joined.response_metadata["finish_reason"] == "length"


def test_stop(model: ChatOpenAI) -> None:
    whole = model.invoke(MESSAGES).text
    stop = whole[6:9]
    answer = model.invoke(MESSAGES, stop=[stop])
    assert answer.text == whole[: whole.index(stop)]
    assert answer.response_metadata["finish_reason"] == "stop"
    assert "".join([piece.text for piece in model.stream(MESSAGES, stop=[stop])]) == answer.text


def test_errors_are_those_of_openai(model: ChatOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="tools"):
        model.bind_tools([{"name": "f", "description": "", "parameters": {}}]).invoke(MESSAGES)


@pytest.fixture
def responding(http: HttpStack) -> ChatOpenAI:
    """On responses, the last one of which it goes on from."""
    there: dict[str, Any] = {"base_url": http.base_url, "api_key": http.key, "max_retries": 0}
    told: dict[str, Any] = {"use_responses_api": True, "use_previous_response_id": True, "max_tokens": 40}
    return ChatOpenAI(model=MODEL, temperature=0, **there, **told)


def test_responses(responding: ChatOpenAI) -> None:
    first = responding.invoke(MESSAGES)
    assert isinstance(first, AIMessage)
    assert first.text
    assert first.response_metadata["status"] == "completed"
    assert first.usage_metadata
    assert first.usage_metadata["input_tokens"] == NUM_PROMPT_TOKENS
    streamed = "".join(piece.text for piece in responding.stream(MESSAGES))
    assert streamed == first.text
    second = responding.invoke([*MESSAGES, first, HumanMessage("And?")])
    assert isinstance(second, AIMessage)
    assert second.usage_metadata
    conversation = (("system", "Be brief."), ("user", "Hello"), ("assistant", first.text), ("user", "And?"))
    assert second.usage_metadata["input_tokens"] == len(prompt_ids(*conversation))
