"""What tests of the chat share beside its fixtures."""

from collections.abc import Callable

from kakeya.text.chat_tokenizer import ChatTokenizer
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

Talk = Callable[..., int]
"""Chats with these lines and flags; returns the exit status."""


def encode(tokenizer: ChatTokenizer, text: str) -> list[int]:
    return list(tokenizer._tokenizer.encode(text, add_special_tokens=False))


def sent(tokenizer: ChatTokenizer, runtime: ScriptedRuntime) -> list[str]:
    """The text of each append, special tokens included."""
    return [tokenizer._tokenizer.decode(list(request.token_ids)) for request in runtime.requests["AppendTokens"]]
