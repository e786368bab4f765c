"""The `openai` package, by hand: each answer's message goes back as it came, or joined from its stream."""

from collections.abc import AsyncGenerator
from typing import Any

from openai import AsyncOpenAI

from tests.loops.drivers.driver import Talk, serve


async def hold(talk: Talk) -> AsyncGenerator[str, None]:
    messages: list[Any] = [{"role": "system", "content": talk.system}] if talk.system else []
    async with AsyncOpenAI(base_url=talk.base_url, api_key="none", max_retries=0) as client:
        given: dict[str, Any] = {"model": talk.model, "max_tokens": talk.max_tokens, "stop": talk.stop_or_none}
        for question in talk.questions:
            messages.append({"role": "user", "content": question})
            if talk.streams:
                text = ""
                async for chunk in await client.chat.completions.create(messages=messages, stream=True, **given):
                    text += "".join(choice.delta.content or "" for choice in chunk.choices)
                messages.append({"role": "assistant", "content": text})
            else:
                answer = await client.chat.completions.create(messages=messages, **given)
                messages.append(answer.choices[0].message)
                text = answer.choices[0].message.content or ""
            yield text


if __name__ == "__main__":
    serve("openai", hold)
