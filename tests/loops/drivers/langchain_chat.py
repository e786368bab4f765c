"""LangChain's ChatOpenAI: each answer goes back as the message that LangChain makes of it."""

from collections.abc import AsyncGenerator
from typing import Any

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI

from tests.loops.drivers.driver import Talk, serve


async def hold(talk: Talk) -> AsyncGenerator[str, None]:
    there: dict[str, Any] = {"base_url": talk.base_url, "api_key": "none", "max_retries": 0}
    model = ChatOpenAI(model=talk.model, max_tokens=talk.max_tokens, **there)  # type: ignore[call-arg]  # an alias
    messages: list[Any] = [SystemMessage(talk.system)] if talk.system else []
    for question in talk.questions:
        messages.append(HumanMessage(question))
        answer: Any = None
        if talk.streams:
            async for piece in model.astream(messages, stop=talk.stop_or_none):
                answer = piece if answer is None else answer + piece
        else:
            answer = await model.ainvoke(messages, stop=talk.stop_or_none)
        messages.append(answer)
        yield answer.text


if __name__ == "__main__":
    serve("langchain-openai", hold)
