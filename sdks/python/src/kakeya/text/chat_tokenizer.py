"""Prompts into ids by the model's chat template, ids into text."""

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from typing import Any

from kakeya.text import tokenizer_files, tokenizer_loading
from kakeya.text.chat_template import ChatTemplate, Message, Tools
from kakeya.text.rendering.given import check_whole
from kakeya.text.rendering.marked_text import has_stand_ins
from kakeya.text.tokenizer_error import PromptRefused, PromptTooLong, TemplateStopped, TokenizerError
from kakeya.text.vocabulary import Vocabulary

__all__ = ["ChatTokenizer", "Message", "PromptRefused", "PromptTooLong", "TemplateStopped", "TokenizerError", "Tools"]

_PIECE_LETTERS = 1 << 16
_CUT_TOKENS = 64  # far more than a cut in the middle of a text adds to its tokens
_LETTERS_A_TOKEN = 4  # a text with fewer is encoded at once, whatever it comes to
_LEADING_ROLES = ("system", "developer")


class ChatTokenizer:
    """A tokenizer and, if it has one, its chat template. Its methods may be called from several threads at once.

    Args:
        name: a directory with the tokenizer's files, or a model id of the Hugging Face Hub.
        is_plain: do without the chat template, as if there were none.
        parses_texts: control tokens in the texts of a conversation are such; otherwise they are text.

    Attributes:
        name: as above, `~` expanded.
        directory: where the files are; a hub's are in its snapshot.
        eos_token_ids: what ends an answer: the tokenizer's own, then those of generation_config.json or config.json.
        vocabulary: the single tokens.

    Raises:
        MissingExtra: the extra [tokenizer] is not installed.
        TokenizerError: there is no such tokenizer, a file of it is broken, or its chat template does not write what is
            said.
    """

    def __init__(self, name: str, *, is_plain: bool = False, parses_texts: bool = False) -> None:
        if name.startswith(("/", ".", "~")):
            name = os.path.expanduser(name)
            if not os.path.isdir(name):
                raise TokenizerError(f"{name} is no directory")
        self.name = name
        self._tokenizer, self.directory = tokenizer_loading.load(name)
        self.vocabulary = Vocabulary(self._tokenizer.backend)
        self.eos_token_ids = self._all_eos_token_ids()
        self._parses_texts = parses_texts
        self._template = None if is_plain else self._named_template("default")

    @property
    def num_token_ids(self) -> int:
        """Ids that it may make of a text are below this."""
        return self._tokenizer.num_token_ids

    @property
    def template(self) -> str:
        """The source of the chat template; "" where there is none."""
        return self._template.source if self._template else ""

    @property
    def has_template(self) -> bool:
        """Whether prompts are rendered by a chat template, not sent as they are."""
        return self._template is not None

    @property
    def leaves_out_system(self) -> bool:
        """Whether the chat template neither writes system messages nor refuses them."""
        return self._template is not None and self._template.leaves_out_system

    def decode(self, token_ids: list[int], *, special_tokens: bool = False) -> str:
        """Text, as it is told without special tokens."""
        return self._tokenizer.decode(token_ids, special_tokens=special_tokens)

    def encode(self, text: str, *, max_tokens: int | None = None, parses: bool = True) -> list[int]:
        """The tokens of a whole text, with the special ones that the tokenizer puts around it.

        Args:
            parses: control tokens in it are such; otherwise they are text.

        Raises:
            PromptRefused: the text holds half a character; PromptTooLong where it has more than `max_tokens`.
        """
        check_whole(text)
        self._check_length(text, max_tokens)
        encode = self._tokenizer.encoder.parsed if parses else self._tokenizer.encoder.as_text
        return _no_longer(encode(text, special_tokens=True), max_tokens)

    def prompt(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int | None = None,
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """The tokens of a conversation whose next message will be the model's.

        Args:
            tools: what it may call.
            variables: what else the chat template is told.

        Raises:
            PromptRefused: the chat template refuses it, there is none, or a text holds half a character; PromptTooLong
                where it has more than `max_tokens`.
            TemplateStopped: the chat template does not come to an end.
            TokenizerError: the chat template fails on it.
        """
        template = self._chat_template if tools is None else self._tool_template
        return self._ids(template.render(messages, tools=tools, variables=variables), max_tokens)

    def num_pinned_tokens(self, messages: Sequence[Message]) -> int:
        """How many tokens at the start of a prompt hold the system messages it begins with, whatever follows them.

        Returns:
            0 where it begins with none, or where the chat template leaves them out or puts them behind what follows.

        Raises:
            PromptRefused: the chat template refuses the messages, or there is none.
            TokenizerError: the chat template fails on them.
        """
        leading = list(takewhile(lambda message: message.get("role") in _LEADING_ROLES, messages))
        if not leading:
            return 0
        head = self._head(leading)
        head = head[: _num_common(head, self._chat_template.render(messages))]
        if not self._holds(head, leading):
            return 0
        return _num_common(self._ids(head), self.prompt([*leading, _said("-")]))

    def first_prompt(self, text: str, system: str | None) -> list[int]:
        """The tokens that open a conversation. Raises TokenizerError where the chat template does not take it."""
        if not self.has_template:
            whole = "\n".join(part for part in (system, text) if part) + "\n"
            return self.encode(whole, parses=self._parses_texts)
        return self.prompt(_opening(text, system))

    def num_system_tokens(self, system: str) -> int:
        """How many tokens at the start of a conversation hold its system prompt, whatever the user says.

        Returns:
            0 where the chat template leaves it out or puts it behind what the user says.

        Raises:
            TokenizerError: the chat template does not take system prompts.
        """
        if not self.has_template:
            alone = self.encode(f"{system}\n", parses=self._parses_texts)
            return _num_common(alone, self.first_prompt("-", system))
        return self.num_pinned_tokens(_opening("-", system))

    def next_prompt(self, text: str, last_token_id: int | None) -> list[int]:
        """The tokens between the model's answer and its next one.

        Args:
            text: what the user says.
            last_token_id: of the answer. An end-of-sequence token is in the history and not sent again; an answer
                that was cut off gets the one it lacks.

        Raises:
            TokenizerError: the chat template does not take the conversation, or leaves out what was said before.
        """
        if self._template is None:
            check_whole(text)
            encode = self._tokenizer.encoder.parsed if self._parses_texts else self._tokenizer.encoder.as_text
            return encode(f"\n{text}\n", special_tokens=False)
        prompt = self._template.between(text)
        if last_token_id is not None and last_token_id in self.eos_token_ids:
            prompt = prompt.removeprefix(self.vocabulary.token(last_token_id))
        return self._ids(prompt)

    @property
    def _chat_template(self) -> ChatTemplate:
        if self._template is None:
            raise PromptRefused(f"the tokenizer {self.name} has no chat template")
        return self._template

    @cached_property
    def _tool_template(self) -> ChatTemplate:
        """For conversations with tools, where that is another one."""
        return self._named_template("tool_use") or self._chat_template

    def _named_template(self, name: str) -> ChatTemplate | None:
        config = self._tokenizer.config
        source = config.templates.get(name)
        control = None if self._parses_texts else self._tokenizer.control
        return ChatTemplate(source, self.name, config.special_tokens, control) if source else None

    def _head(self, leading: Sequence[Message]) -> str:
        """What every prompt that begins with these messages begins with."""
        render = self._chat_template.render
        first, second = (render([*leading, _said(text)]) for text in ("A", "B"))
        try:
            alone = render(leading, prompts_answer=False)
        except TemplateStopped:
            raise
        except TokenizerError:
            alone = ""
        # Some templates render no system message alone, or put it into the user's: then the head of that is in, too.
        if self._holds(alone, leading) and first.startswith(alone):
            return alone
        return first[: _num_common(first, second)]

    def _holds(self, rendered: str, messages: Sequence[Message]) -> bool:
        """Whether the texts of all the messages are in it, in capitals perhaps, as some templates write them."""
        written = self._chat_template.unmarked(rendered).casefold()
        texts = (text for message in messages for text in _texts(message.get("content")))
        return all(text.strip().casefold() in written for text in texts)

    def _ids(self, rendered: str, max_tokens: int | None = None) -> list[int]:
        """The tokens of what the chat template wrote."""
        meant = self._chat_template.unmarked(rendered)
        check_whole(meant)
        self._check_length(meant, max_tokens)
        if has_stand_ins(rendered):
            return _no_longer(self._tokenizer.encoder.marked(rendered), max_tokens)
        return _no_longer(self._tokenizer.encode(rendered), max_tokens)

    def _check_length(self, text: str, max_tokens: int | None) -> None:
        """Raises PromptTooLong where a beginning of the text is."""
        if max_tokens is not None and self._is_surely_longer(text, max_tokens):
            raise _too_long(max_tokens)

    def _is_surely_longer(self, text: str, max_tokens: int) -> bool:
        """Told from the beginning of a long text, in pieces: a book as a whole takes seconds, and a gigabyte."""
        if len(text) <= max(_PIECE_LETTERS, _LETTERS_A_TOKEN * max_tokens):
            return False
        num_tokens = 0
        for start in range(0, len(text), _PIECE_LETTERS):
            piece = self._tokenizer.encode(text[start : start + _PIECE_LETTERS])
            num_tokens += max(0, len(piece) - _CUT_TOKENS)
            if num_tokens > max_tokens:
                return True
        return False

    def _all_eos_token_ids(self) -> list[int]:
        eos = self._tokenizer.eos_token_id
        own = [] if eos is None else [eos]
        return list(dict.fromkeys(own + tokenizer_files.eos_token_ids(self.directory)))


def _too_long(max_tokens: int) -> PromptTooLong:
    return PromptTooLong(f"the prompt has more than {max_tokens:,} tokens")


def _no_longer(token_ids: list[int], max_tokens: int | None) -> list[int]:
    if max_tokens is not None and len(token_ids) > max_tokens:
        raise _too_long(max_tokens)
    return token_ids


def _opening(text: str, system: str | None) -> list[Message]:
    return [{"role": "system", "content": system}, _said(text)] if system else [_said(text)]


def _said(text: str) -> Message:
    return {"role": "user", "content": text}


def _texts(content: Any) -> list[str]:
    """A content may be one text, or parts, some of which are texts."""
    if isinstance(content, list):
        return [part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
    return [content] if isinstance(content, str) else []


def _num_common(first: Sequence[object], second: Sequence[object]) -> int:
    """How many elements both begin with; found by halving, since texts may be long."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
