"""Haystack's `Agent` on its OpenAI generator: the messages of each run go into the next one."""

from collections.abc import AsyncGenerator
from typing import Any

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret

from tests.agents.drivers.weather import get_weather
from tests.loops.drivers.driver import Talk, serve


async def ignore(_chunk: Any) -> None:
    """What comes of a stream is in the answer, too."""


async def hold(talk: Talk) -> AsyncGenerator[str, None]:
    generator = OpenAIChatGenerator(
        api_key=Secret.from_token("none"),
        model=talk.model,
        api_base_url=talk.base_url,
        generation_kwargs={"max_tokens": talk.max_tokens},
        max_retries=0,
    )
    agent = Agent(chat_generator=generator, tools=[create_tool_from_function(get_weather)])
    messages: list[Any] = [ChatMessage.from_system(talk.system)] if talk.system else []
    for question in talk.questions:
        messages.append(ChatMessage.from_user(question))
        told: dict[str, Any] = {"streaming_callback": ignore} if talk.streams else {}
        result = await agent.run_async(messages=messages, **told)
        messages = list(result["messages"])
        yield messages[-1].text


if __name__ == "__main__":
    serve("haystack-ai", hold)
