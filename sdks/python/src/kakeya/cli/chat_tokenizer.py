"""The chat's side of tokens: prompts into ids by the model's chat template, ids into text."""

import os
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from kakeya.errors import MissingExtra

_ANSWER = "KAKEYA-ANSWER"  # stands in a rendered conversation where the model's answer was


class TokenizerError(Exception):
    """There is no tokenizer to be had; the message says what to do."""


class ChatTokenizer:
    """A tokenizer and, if it has one, its chat template.

    Args:
        name: a directory with the tokenizer's files, or a model id of the Hugging Face Hub.

    Attributes:
        name: as above, `~` expanded.

    Raises:
        MissingExtra: the extra [tokenizer] is not installed.
        TokenizerError: there is no such tokenizer.
    """

    def __init__(self, name: str) -> None:
        # Said before transformers is imported, which warns that it finds no torch; no model is run here.
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise MissingExtra("kakeya chat", "tokenizer") from error
        if name.startswith(("/", ".", "~")):
            name = str(Path(name).expanduser())
            if not Path(name).is_dir():
                raise TokenizerError(f"{name} is no directory")
        self.name = name
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(name)
        except (OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise TokenizerError(f"no tokenizer can be loaded from {name!r}: {reason}") from error

    @property
    def num_token_ids(self) -> int:
        """Ids that it may make of a text are below this."""
        return len(self._tokenizer)

    @property
    def eos_token_ids(self) -> list[int]:
        """What ends an answer; empty if the tokenizer does not say."""
        eos = self._tokenizer.eos_token_id
        return [] if eos is None else [eos]

    @property
    def has_template(self) -> bool:
        """Whether prompts are rendered by a chat template, not sent as they are."""
        return bool(self._tokenizer.chat_template)

    def decode(self, token_ids: list[int]) -> str:
        """Text without special tokens."""
        return str(self._tokenizer.decode(token_ids, skip_special_tokens=True))

    def first_prompt(self, text: str, system: str | None) -> list[int]:
        """The tokens that open a conversation. Raises TokenizerError where the chat template refuses it."""
        if not self.has_template:
            return self._encode("\n".join(part for part in (system, text) if part) + "\n", special_tokens=True)
        messages = [{"role": "system", "content": system}] if system else []
        return self._encode(self._render([*messages, {"role": "user", "content": text}]))

    def num_system_tokens(self, system: str) -> int:
        """How many tokens at the start of a conversation hold its system prompt, whatever the user says.

        Returns:
            0 where the chat template leaves it out or puts it behind what the user says.

        Raises:
            TokenizerError: the chat template refuses system prompts.
        """
        head = self._system_head(system)
        if system.strip() not in head:
            return 0
        return _num_common(self._encode(head, special_tokens=not self.has_template), self.first_prompt("-", system))

    def next_prompt(self, text: str, last_token_id: int | None) -> list[int]:
        """The tokens between the model's answer and its next one.

        Args:
            text: what the user says.
            last_token_id: of the answer. An end-of-sequence token is in the history and not sent again; an answer
                that was cut off gets the one it lacks.

        Raises:
            TokenizerError: the chat template refuses the conversation.
        """
        if not self.has_template:
            return self._encode(f"\n{text}\n")
        conversation = [
            {"role": "user", "content": "-"},
            {"role": "assistant", "content": _ANSWER},
            {"role": "user", "content": text},
        ]
        _, _, prompt = self._render(conversation).partition(_ANSWER)
        if last_token_id in self.eos_token_ids:
            prompt = prompt.removeprefix(self._tokenizer.eos_token)
        return self._encode(prompt)

    def _system_head(self, system: str) -> str:
        if not self.has_template:
            return f"{system}\n"
        message = {"role": "system", "content": system}
        first, second = (self._render([message, {"role": "user", "content": text}]) for text in ("A", "B"))
        alone = self._rendered_alone(message)
        # Some templates render no system message alone, or put it into the user's: then the head of that is in, too.
        if system.strip() in alone and first.startswith(alone):
            return alone
        return first[: _num_common(first, second)]

    def _rendered_alone(self, message: dict[str, str]) -> str:
        try:
            return self._render([message], prompts_answer=False)
        except TokenizerError:
            return ""

    def _render(self, messages: list[dict[str, str]], *, prompts_answer: bool = True) -> str:
        from jinja2 import TemplateError

        try:
            text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompts_answer)
        except TemplateError as error:
            roles = ", ".join(message["role"] for message in messages)
            raise TokenizerError(f"the chat template refuses messages of {roles}: {error}") from error
        return str(text)

    def _encode(self, text: str, *, special_tokens: bool = False) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=special_tokens))


def _num_common(first: Sequence[object], second: Sequence[object]) -> int:
    """How many elements both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
