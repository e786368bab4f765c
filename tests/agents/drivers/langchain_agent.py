"""LangChain's `create_agent`: the messages of its state go back as it keeps them."""

from collections.abc import AsyncGenerator
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from tests.agents.drivers.weather import get_weather
from tests.loops.drivers.driver import Talk, serve


async def hold(talk: Talk) -> AsyncGenerator[str, None]:
    there: dict[str, Any] = {"base_url": talk.base_url, "api_key": "none", "max_retries": 0}
    model = ChatOpenAI(model=talk.model, max_tokens=talk.max_tokens, streaming=talk.streams, **there)  # type: ignore[call-arg]
    agent: Any = create_agent(model, [tool(get_weather)], system_prompt=talk.system or None)
    messages: list[Any] = []
    for question in talk.questions:
        messages.append({"role": "user", "content": question})
        async for state in agent.astream({"messages": messages}, stream_mode="values"):
            messages = state["messages"]
        yield messages[-1].text


if __name__ == "__main__":
    serve("langchain", hold)
