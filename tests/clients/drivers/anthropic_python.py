"""What the package `anthropic`, unmodified, gets of a server: python anthropic_python.py '{"url", "model", "name"}'

Prints one JSON object, which test_anthropic.py judges. Its sister anthropic_npm/ask.mjs asks for the same.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import anthropic

SYSTEM = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
HELLO = [{"role": "user", "content": "Hello"}]
GREEDY = {"extra_body": {"temperature": 0}}
"""The package of today has no name for it; so two answers can be compared."""


class Asker:
    def __init__(self, url: str, model: str, name: str) -> None:
        self._url = url
        self._name = name
        self._client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
        self._asked: dict[str, Any] = {"model": model, "max_tokens": 24, "messages": HELLO} | GREEDY

    def told(self) -> dict[str, Any]:
        whole = self._client.messages.create(**self._asked)
        text = whole.content[0].text
        bearer = anthropic.Anthropic(base_url=self._url, api_key=None, auth_token="none", max_retries=0)
        return {
            "whole": _summary(whole) | {"isNamed": bool(whole._request_id)},
            "events": [event.type for event in self._client.messages.create(**self._asked, stream=True)],
            "helper": self._helper(),
            "stopped": _summary(self._client.messages.create(**self._asked, stop_sequences=[text[3:6]])),
            "prefilled": _summary(self._ask(messages=[*HELLO, {"role": "assistant", "content": text[:4]}])),
            "beta": _summary(self._client.beta.messages.create(**self._asked, betas=["files-api-2025-04-14"])),
            "bearer": _summary(bearer.messages.create(**self._asked)),
            "counted": self._client.messages.count_tokens(
                model=self._asked["model"], system=SYSTEM, messages=HELLO
            ).input_tokens,
            "turns": self._turns(),
            "errors": self._errors(),
        }

    def _ask(self, **fields: Any) -> Any:
        return self._client.messages.create(**{**self._asked, **fields})

    def _helper(self) -> dict[str, Any]:
        with self._client.messages.stream(**self._asked) as stream:
            text = "".join(stream.text_stream)
            return _summary(stream.get_final_message()) | {"streamed": text}

    def _turns(self) -> list[dict[str, Any]]:
        """Of a conversation in which each answer is sent back as it was got."""
        messages: list[Any] = []
        turns = []
        for number in range(4):
            messages.append({"role": "user", "content": f"I am {self._name}. What is {number} plus {number}?"})
            asked = {**self._asked, "max_tokens": 60, "system": SYSTEM, "messages": messages}
            raw = self._client.messages.with_raw_response.create(**asked)
            answer = raw.parse()
            turns.append(_summary(answer) | {"session": raw.headers["kakeya-session"]})
            messages.append({"role": "assistant", "content": answer.content})
        return turns

    def _errors(self) -> dict[str, Any]:
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
        return {
            "badRequest": _refused(lambda: self._ask(max_tokens=0)),
            "image": _refused(lambda: self._ask(messages=[{"role": "user", "content": [image]}])),
            "notFound": _refused(lambda: self._ask(model="other")),
        }


def _summary(message: Any) -> dict[str, Any]:
    usage = message.usage
    return {
        "model": message.model,
        "text": "".join(block.text for block in message.content),
        "stopReason": message.stop_reason,
        "stopSequence": message.stop_sequence,
        "usage": [usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens],
    }


def _refused(ask: Callable[[], object]) -> dict[str, Any] | None:
    try:
        ask()
    except anthropic.APIStatusError as error:
        body: Any = error.body
        return {
            "kind": type(error).__name__,
            "status": error.status_code,
            "type": body["error"]["type"],
            "message": body["error"]["message"],
            "isNamed": bool(error.request_id),
        }
    return None


if __name__ == "__main__":
    print(json.dumps(Asker(**json.loads(sys.argv[1])).told()))
