"""Requests of texts, by OpenAI's client against a real socket."""

import asyncio
from typing import Any

import pytest

from kakeya_bench.compare.completions import RivalFailed
from kakeya_bench.compare.rival import Rival
from kakeya_bench.compare.texts.text_api import TextApi
from kakeya_bench.compare.texts.wording import said

MESSAGES = [said("Hello there")]


def ask(api: type[TextApi], url: str, *, times: int = 1, timeout_seconds: float = 60.0, **facts: Any) -> list[Any]:
    """Answers of three tokens to the same message, each in a talk of its own."""
    rival = Rival(name="them", url=url, api="chat", model="m", tokenizer="t").model_copy(update=facts)

    async def asked() -> list[Any]:
        found = []
        async with api(rival, timeout_seconds) as entered:
            for _ in range(times):
                talk = entered.talk()
                talk.say(*MESSAGES)
                found.append(await talk.ask(3))
        return found

    return asyncio.run(asked())


def failure(api: type[TextApi], url: str, **how: Any) -> str:
    """Why there is no answer."""
    with pytest.raises(RivalFailed) as failed:
        ask(api, url, **how)
    return str(failed.value)
