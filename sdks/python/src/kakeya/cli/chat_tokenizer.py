"""The chat's side of tokens: prompts into ids by the model's chat template, ids into text."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kakeya.errors import MissingExtra

_ANSWER = "KAKEYA-ANSWER"  # stands in a rendered conversation where the model's answer was


class TokenizerError(Exception):
    """There is no tokenizer to be had; the message says what to do."""


def default_name(environment: Mapping[str, str] = os.environ) -> str:
    """$KAKEYA_TOKENIZER, else the demo checkpoint.

    Raises:
        TokenizerError: neither is there.
    """
    if environment.get("KAKEYA_TOKENIZER"):
        return environment["KAKEYA_TOKENIZER"]
    data_dir = Path(environment.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    demo = data_dir / "kakeya" / "demo-checkpoint"
    if demo.is_dir():
        return str(demo)
    raise TokenizerError(
        f"which tokenizer? Pass --tokenizer DIR, the directory of the model that is served, or set KAKEYA_TOKENIZER "
        f"(there is no demo checkpoint at {demo})"
    )


class ChatTokenizer:
    """A tokenizer and, if it has one, its chat template.

    Args:
        name: a directory with the tokenizer's files, or a model id of the Hugging Face Hub.

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
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(name)
        except (OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise TokenizerError(f"no tokenizer can be loaded from {name!r}: {reason}") from error

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
        """The tokens that open a conversation."""
        if not self.has_template:
            return self._encode("\n".join(part for part in (system, text) if part) + "\n", special_tokens=True)
        messages = [{"role": "system", "content": system}] if system else []
        return self._encode(self._render([*messages, {"role": "user", "content": text}]))

    def next_prompt(self, text: str, last_token_id: int | None) -> list[int]:
        """The tokens between the model's answer and its next one.

        Args:
            text: what the user says.
            last_token_id: of the answer. An end-of-sequence token is in the history and not sent again; an answer
                that was cut off gets the one it lacks.
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

    def _render(self, messages: list[dict[str, str]]) -> str:
        return str(self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    def _encode(self, text: str, *, special_tokens: bool = False) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=special_tokens))
