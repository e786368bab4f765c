"""Where whole answers are written: short ones on the event loop, long ones beside it."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from kakeya_http_shim.answers.chat_answer import ChatWriter
from kakeya_http_shim.answers.writer import Heading, Whole
from tests.unit.http_shim.shim import Shim


@pytest.mark.parametrize(
    ("text", "asked", "on_the_loop"),
    [
        ("Yes.", {}, True),
        ("Yes.", {"n": 2}, True),
        ("Yes.", {"logprobs": True, "top_logprobs": 1}, False),
        ("no " * 200, {"max_tokens": 600}, False),
        ("no " * 90, {"max_tokens": 270, "n": 2}, False),
    ],
    ids=["short", "two short ones", "with log-probabilities", "long", "long together"],
)
async def test_what_keeps_the_event_loop_waiting_is_written_beside_it(
    shim: Shim, monkeypatch: pytest.MonkeyPatch, text: str, asked: dict[str, Any], on_the_loop: bool
) -> None:
    threads: list[threading.Thread] = []
    write = ChatWriter.whole

    def noted(self: ChatWriter, heading: Heading, answers: Sequence[Whole]) -> bytes:
        threads.append(threading.current_thread())
        return write(self, heading, answers)

    monkeypatch.setattr(ChatWriter, "whole", noted)
    shim.will_say(*[text] * asked.get("n", 1))
    choices = (await shim.chat(**asked)).json()["choices"]
    assert [choice["message"]["content"] for choice in choices] == [text] * asked.get("n", 1)
    assert [thread is threading.current_thread() for thread in threads] == [on_the_loop]
