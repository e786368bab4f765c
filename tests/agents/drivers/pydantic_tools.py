"""`pydantic-ai`: an agent with a tool, whose history goes back as it keeps it."""

from collections.abc import AsyncGenerator
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from tests.agents.drivers.weather import get_weather
from tests.loops.drivers.driver import Talk, serve


async def hold(talk: Talk) -> AsyncGenerator[str, None]:
    model = OpenAIChatModel(talk.model, provider=OpenAIProvider(base_url=talk.base_url, api_key="none"))
    settings = ModelSettings(max_tokens=talk.max_tokens)
    agent = Agent(model, instructions=talk.system or None, tools=[get_weather], model_settings=settings, retries=0)
    history: list[Any] = []
    for question in talk.questions:
        if talk.streams:
            async with agent.run_stream(question, message_history=history) as result:
                text = "".join([piece async for piece in result.stream_text(delta=True)])
                history = result.all_messages()
        else:
            answer = await agent.run(question, message_history=history)
            text, history = answer.output, answer.all_messages()
        yield text


if __name__ == "__main__":
    serve("pydantic-ai-slim", hold)
