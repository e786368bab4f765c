"""A model's tokenizer and chat template: dialogues as the tokens that a session of Kakeya would hold.

A session only appends. So each exchange is what stands before the answer, the answer, and the token that ends it, one
after the other; nothing is rendered anew as the dialogue grows.
"""

import json
import os
from functools import cached_property
from pathlib import Path
from typing import Any

from kakeya.text import chat_template
from kakeya.text.tokenizer_error import TokenizerError
from kakeya_worker.quality.exchange import Exchange
from kakeya_worker.quality.failure import CannotMeasure, missing

Tokens = tuple[int, ...]

_SYSTEM, _USER = "KAKEYA-SYSTEM", "KAKEYA-USER"  # stand in rendered conversations where texts will be
_PLAIN = "{% for message in messages %}{{ message['content'] + '\n' }}{% endfor %}"


class ChatTemplate:
    """The template of the tokenizer in a directory; without one, messages are plain lines.

    Attributes:
        is_plain: the tokenizer has no chat template.
        eos_token_ids: what ends an answer.

    Raises:
        CannotMeasure: there is no tokenizer, no library to read it, or its chat template leaves out what is said.
    """

    def __init__(self, directory: Path) -> None:
        # Said before transformers is imported, which warns that it finds no torch; it runs no model here.
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
        try:
            import jinja2  # noqa: F401  # transformers imports it only where a template is rendered
            from transformers import AutoTokenizer
        except ModuleNotFoundError as error:
            raise missing(error.name) from error
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(str(directory))
        except BaseException as error:
            # Libraries in Rust raise plain Exceptions, and for their own faults a PanicException, which is none.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise CannotMeasure(f"no tokenizer can be loaded from {directory}: {reason}") from error
        self.is_plain = not self._tokenizer.chat_template
        if self.is_plain:
            self._tokenizer.chat_template = _PLAIN
        try:
            # Templates of models that think before they answer are asked not to; others do not know the word.
            self._template = chat_template.ChatTemplate(self._tokenizer, str(directory), enable_thinking=False)
            self._template.between("-")  # whether a conversation can go on by it, and begin
            self._template.around([_message("user", _USER)], _USER)
        except TokenizerError as error:
            raise CannotMeasure(str(error)) from error
        self.eos_token_ids = frozenset(_said_eos(directory)) | _own_eos(self._tokenizer)

    @cached_property
    def takes_system(self) -> bool:
        """Whether the template knows system messages; some refuse them, or leave them out."""
        try:
            self._template.around([_message("system", _SYSTEM), _message("user", _USER)], _SYSTEM)
        except TokenizerError:
            return False
        return True

    def encode(self, text: str) -> Tokens:
        """Text as it stands, without special tokens around it."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, tokens: Tokens) -> str:
        """Without special tokens."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def system(self, text: str | None) -> Tokens:
        """All that stands before the first user's text, the system message first if there is one."""
        messages = [_message("system", text)] if text is not None else []
        return self.encode(self._template.around([*messages, _message("user", _USER)], _USER)[0])

    def first_question(self, text: str) -> Tokens:
        """From the first user's text to where the answer begins."""
        return self.encode(text + self._template.around([_message("user", _USER)], _USER)[1])

    def question(self, text: str) -> Tokens:
        """From the end of an answer to where the next one begins."""
        return self._between_and_end(text)[1]

    def answer(self, text: str) -> Tokens:
        """An answer with the token that ends it, if the template has one."""
        return (*self.encode(text), *self.end_of_answer)

    def exchange(self, exchange: Exchange) -> tuple[Tokens, Tokens]:
        """What stands before the answer, and the answer with its end."""
        return self.question(exchange.question), self.answer(exchange.answer)

    @cached_property
    def end_of_answer(self) -> Tokens:
        return self._between_and_end("")[0]

    def _between_and_end(self, text: str) -> tuple[Tokens, Tokens]:
        tokens = self.encode(self._template.between(text or "-"))
        num_ends = int(bool(tokens) and tokens[0] in self.eos_token_ids)
        return tokens[:num_ends], tokens[num_ends:]


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _own_eos(tokenizer: Any) -> frozenset[int]:
    return frozenset() if tokenizer.eos_token_id is None else frozenset({int(tokenizer.eos_token_id)})


def _said_eos(directory: Path) -> list[int]:
    """What ends an answer by generation_config.json, else by config.json, else by the language model's part of it."""
    generation, config = (_document(directory / name) for name in ("generation_config.json", "config.json"))
    part = config.get("text_config") or {}
    said = (each.get("eos_token_id") for each in (generation, config, part) if isinstance(each, dict))
    ids: Any = next((ids for ids in said if ids is not None and ids != []), [])
    return list(ids) if isinstance(ids, list) else [int(ids)]


def _document(path: Path) -> dict[str, Any]:
    """Empty where there is none. Raises CannotMeasure."""
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise CannotMeasure(f"{path} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise CannotMeasure(f"{path} is no JSON object")
    return document
