"""`instructor`: each question is answered as an object of one class, by another of its ways of asking for that."""

from collections.abc import AsyncGenerator
from typing import Any

import instructor
from openai import AsyncOpenAI
from pydantic import BaseModel

from tests.loops.drivers.driver import Talk, serve

_MODES = (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA, instructor.Mode.JSON, instructor.Mode.MD_JSON)


class Person(BaseModel):
    """Somebody."""

    name: str
    age: int


async def hold(talk: Talk) -> AsyncGenerator[str, None]:
    async with AsyncOpenAI(base_url=talk.base_url, api_key="none", max_retries=0) as plain:
        for question, mode in zip(talk.questions, _MODES, strict=True):
            client: Any = instructor.from_openai(plain, mode=mode)
            told: dict[str, Any] = {
                "model": talk.model,
                "messages": [{"role": "user", "content": question}],
                "response_model": Person,
                "max_tokens": talk.max_tokens,
            }
            if talk.streams:
                found = [each async for each in client.chat.completions.create_partial(**told)][-1]
            else:
                found = await client.chat.completions.create(max_retries=1, **told)
            yield f"{mode.name} {found.name} {found.age}"


if __name__ == "__main__":
    serve("instructor", hold)
