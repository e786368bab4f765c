"""What the package `ollama`, unmodified, gets of a server: python ollama_python.py '{"url", "model"}'

Prints one JSON object, which test_ollama.py judges.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

import ollama

HELLO = [{"role": "user", "content": "Hello"}]
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
OPTIONS = {"temperature": 0, "num_predict": 24, "num_ctx": 4096}


def add(one: int, other: int) -> int:
    """
    Add two numbers

    Args:
      one: The first
      other: The second

    Returns:
      int: Their sum
    """
    return one + other


class Asker:
    def __init__(self, url: str, model: str) -> None:
        self._url = url
        self._client = ollama.Client(host=url)
        self._asked: dict[str, Any] = {"model": model, "messages": HELLO, "options": OPTIONS}

    def told(self) -> dict[str, Any]:
        whole = self._client.chat(**self._asked)
        pieces = list(self._client.chat(**self._asked, stream=True))
        prompt = {"model": self._asked["model"], "prompt": "Hello", "options": OPTIONS}
        return {
            "whole": _summary(whole),
            "pieces": [piece.message.content for piece in pieces],
            "ends": [piece.done for piece in pieces],
            "streamed": _summary(pieces[-1]),
            "forms": [self._client.chat(**self._asked, format=form).message.content for form in ("json", SCHEMA)],
            "generated": self._client.generate(**prompt).response,
            "streamedPrompt": "".join(part.response for part in self._client.generate(**prompt, stream=True)),
            "raw": self._client.generate(**prompt, raw=True).response,
            "loaded": self._client.generate(model=self._asked["model"], keep_alive=0).done_reason,
            "logprobs": [each.token for each in self._client.chat(**self._asked, logprobs=True).logprobs],
            "async": asyncio.run(self._asynchronous()),
            "models": self._models(),
            "turns": self._turns(),
            "errors": self._errors(),
        }

    async def _asynchronous(self) -> str:
        client = ollama.AsyncClient(host=self._url)
        return "".join([part.message.content async for part in await client.chat(**self._asked, stream=True)])

    def _models(self) -> dict[str, Any]:
        shown = self._client.show(self._asked["model"])
        return {
            "listed": [model.model for model in self._client.list().models],
            "running": [(model.model, model.context_length) for model in self._client.ps().models],
            "shown": {"capabilities": shown.capabilities, "info": shown.modelinfo, "template": shown.template},
        }

    def _turns(self) -> list[list[int]]:
        """Tokens before each answer, and of it, of a conversation in which each is sent back as it was got."""
        messages: list[Any] = []
        counts = []
        for number in range(3):
            messages.append({"role": "user", "content": f"What is {number} plus {number}?"})
            answer = self._client.chat(**{**self._asked, "messages": messages}, keep_alive="10m")
            counts.append([answer.prompt_eval_count, answer.eval_count])
            messages.append(answer.message)
        return counts

    def _errors(self) -> dict[str, Any]:
        return {
            "notFound": _refused(lambda: self._client.chat("other", HELLO)),
            "streamed": _refused(lambda: list(self._client.chat("other", HELLO, stream=True))),
            "embed": _refused(lambda: self._client.embed("other", "Hello")),
            "pull": _refused(lambda: self._client.pull("other")),
            "option": _refused(lambda: self._client.chat(**{**self._asked, "options": {"temperature": 9}})),
        }


class Caller:
    """Of a model that calls tools."""

    def __init__(self, url: str, model: str) -> None:
        self._client = ollama.Client(host=url)
        self._model = model

    def told(self) -> dict[str, Any]:
        messages: list[Any] = [{"role": "user", "content": "Add them."}]
        answers = []
        for streams in (False, True, False):
            message = self._answer(messages, streams)
            answers.append(message.model_dump())
            messages.append(message)
            for call in message.tool_calls or ():
                result = str(add(**call.function.arguments))
                messages.append({"role": "tool", "content": result, "tool_name": call.function.name})
        return {"answers": answers}

    def _answer(self, messages: list[Any], streams: bool) -> Any:
        asked = {"model": self._model, "messages": messages, "tools": [add], "options": {"num_predict": 200}}
        if not streams:
            return self._client.chat(**asked).message
        pieces = [part.message for part in self._client.chat(**asked, stream=True)]
        calls = [call for piece in pieces for call in piece.tool_calls or ()]
        content = "".join(piece.content or "" for piece in pieces)
        return ollama.Message(role="assistant", content=content, tool_calls=calls or None)


def _summary(answer: Any) -> dict[str, Any]:
    names = ("model", "done", "done_reason", "prompt_eval_count", "eval_count", "total_duration", "eval_duration")
    return {"text": answer.message.content, **{name: answer[name] for name in names}}


def _refused(ask: Callable[[], object]) -> dict[str, Any] | None:
    try:
        ask()
    except ollama.ResponseError as error:
        return {"status": error.status_code, "message": error.error}
    return None


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    kind = Caller if given.pop("calls", False) else Asker
    print(json.dumps(kind(**given).told()))
