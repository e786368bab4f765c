"""`openai-agents`: an agent with a tool, whose items go back as it makes them.

On chat completions, or on responses where its argument says so.
"""

import sys
from collections.abc import AsyncGenerator
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from tests.agents.drivers.weather import get_weather
from tests.loops.drivers.driver import Talk, serve


async def hold(talk: Talk) -> AsyncGenerator[str, None]:
    async with AsyncOpenAI(base_url=talk.base_url, api_key="none", max_retries=0) as client:
        kind = OpenAIResponsesModel if sys.argv[1:] == ["responses"] else OpenAIChatCompletionsModel
        model = kind(model=talk.model, openai_client=client)
        settings = ModelSettings(max_tokens=talk.max_tokens, include_usage=True)
        told: dict[str, Any] = {"model": model, "model_settings": settings, "tools": [function_tool(get_weather)]}
        agent = Agent(name="Nano", instructions=talk.system or None, **told)
        items: list[Any] = []
        for question in talk.questions:
            items.append({"role": "user", "content": question})
            if talk.streams:
                result: Any = Runner.run_streamed(agent, items)
                async for _ in result.stream_events():
                    pass
            else:
                result = await Runner.run(agent, items)
            items = result.to_input_list()
            yield str(result.final_output)


if __name__ == "__main__":
    set_tracing_disabled(True)
    serve("openai-agents", hold)
