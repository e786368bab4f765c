"""What tests of the chat share beside its fixtures."""

from collections.abc import Callable

from kakeya.text.chat_tokenizer import ChatTokenizer
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

Talk = Callable[..., int]
"""Chats with these lines and flags; returns the exit status."""


def encode(tokenizer: ChatTokenizer, text: str) -> list[int]:
    return tokenizer._tokenizer.encode(text)


def sent(tokenizer: ChatTokenizer, runtime: ScriptedRuntime) -> list[str]:
    """The text of each append, special tokens included."""
    return [
        tokenizer.decode(list(request.token_ids), special_tokens=True) for request in runtime.requests["AppendTokens"]
    ]
