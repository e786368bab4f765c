"""LlamaIndex's `FunctionAgent`, whose memory keeps the conversation."""

from collections.abc import AsyncGenerator

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.llms.openai_like import OpenAILike

from tests.agents.drivers.weather import get_weather
from tests.loops.drivers.driver import Talk, serve


async def hold(talk: Talk) -> AsyncGenerator[str, None]:
    model = OpenAILike(
        model=talk.model,
        api_base=talk.base_url,
        api_key="none",
        is_chat_model=True,
        is_function_calling_model=True,
        context_window=32_768,
        max_tokens=talk.max_tokens,
        max_retries=0,
    )
    agent = FunctionAgent(tools=[get_weather], llm=model, system_prompt=talk.system or None, streaming=talk.streams)
    memory = ChatMemoryBuffer.from_defaults(llm=model)
    for question in talk.questions:
        yield str(await agent.run(question, memory=memory))


if __name__ == "__main__":
    serve("llama-index-core", hold)
