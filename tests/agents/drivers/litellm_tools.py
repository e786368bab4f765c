"""LiteLLM's library, on OpenAI's API or, with `anthropic` behind it, on Anthropic's: a loop of calls."""

import json
import os
import sys
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it looks for a newer one at GitHub

import litellm

from tests.agents.drivers.weather import get_weather
from tests.loops.drivers.driver import Talk, serve

_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": get_weather.__doc__,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city", "days"],
        },
    },
}


litellm.suppress_debug_info = True  # or it is printed among what a driver says


async def hold(talk: Talk, *, provider: str) -> AsyncGenerator[str, None]:
    base = talk.base_url if provider == "openai" else talk.base_url.removesuffix("/v1")
    told: dict[str, Any] = {"model": f"{provider}/{talk.model}", "api_base": base, "api_key": "none", "tools": [_TOOL]}
    messages: list[Any] = [{"role": "system", "content": talk.system}] if talk.system else []
    for question in talk.questions:
        messages.append({"role": "user", "content": question})
        message = await _answer(messages, talk, told)
        while message.tool_calls:
            for call in message.tool_calls:
                result = get_weather(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
            message = await _answer(messages, talk, told)
        yield message.content


async def _answer(messages: list[Any], talk: Talk, told: dict[str, Any]) -> Any:
    answer = await litellm.acompletion(
        messages=messages, stream=talk.streams, max_tokens=talk.max_tokens, max_retries=0, **told
    )
    if talk.streams:
        answer = litellm.stream_chunk_builder([chunk async for chunk in answer], messages=messages)
    message = answer.choices[0].message
    messages.append(message)
    return message


if __name__ == "__main__":
    serve("litellm", partial(hold, provider=sys.argv[1]))
