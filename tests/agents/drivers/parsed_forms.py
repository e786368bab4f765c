"""`openai` with pydantic: `parse` for an answer of a class, and for arguments of a tool that has to be called."""

from collections.abc import AsyncGenerator
from typing import Any

from openai import AsyncOpenAI, pydantic_function_tool
from pydantic import BaseModel

from tests.loops.drivers.driver import Talk, serve


class Person(BaseModel):
    """Somebody."""

    name: str
    age: int


async def hold(talk: Talk) -> AsyncGenerator[str, None]:
    forms: list[dict[str, Any]] = [
        {"response_format": Person},
        {"tools": [pydantic_function_tool(Person)], "tool_choice": "required"},
    ]
    async with AsyncOpenAI(base_url=talk.base_url, api_key="none", max_retries=0) as client:
        for question, form in zip(talk.questions, forms, strict=True):
            asked = [{"role": "user", "content": question}]
            told: dict[str, Any] = {"model": talk.model, "messages": asked, "max_tokens": talk.max_tokens, **form}
            if talk.streams:
                async with client.chat.completions.stream(**told) as stream:
                    completion = await stream.get_final_completion()
            else:
                completion = await client.chat.completions.parse(**told)
            message: Any = completion.choices[0].message
            found = message.tool_calls[0].function.parsed_arguments if message.tool_calls else message.parsed
            yield f"{found.name} {found.age}"


if __name__ == "__main__":
    serve("openai", hold)
