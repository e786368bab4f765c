"""Prompts into ids by the model's chat template, ids into text."""

import os
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, Literal

from kakeya.text import template_files, tokenizer_files, tokenizer_loading
from kakeya.text.chat_template import ChatTemplate, Message, Tools
from kakeya.text.rendering.given import check_whole
from kakeya.text.rendering.head import common_head, head, leading, num_common, said
from kakeya.text.rendering.kept import Kept, key_of
from kakeya.text.rendering.marked_text import has_stand_ins
from kakeya.text.rendering.open_message import left_open
from kakeya.text.text_tokenizer import no_longer
from kakeya.text.tokenizer_error import PromptRefused, TokenizerError
from kakeya.text.vocabulary import Vocabulary

End = Literal["answer", "message", "text"]
"""Where a prompt ends, see `PromptTokenizer.prompt`."""

_MAX_PINNED_TOKENS: Final = 1 << 20
"""Of heads that are kept: some for each of fifty agents."""


class PromptTokenizer:
    """A tokenizer and, if it has one, its chat template. Its methods may be called from several threads at once.

    Args:
        name: a directory with the tokenizer's files, FILE.gguf, ollama:NAME[:TAG], or a model id of the Hugging Face
            Hub.
        is_plain: do without the chat template, as if there were none.
        parses_texts: control tokens in the texts of a conversation are such; otherwise they are text.
        template_file: with the chat template to take in place of the tokenizer's own, those for tools included.

    Attributes:
        name: as above, `~` expanded.
        directory: where the files are; a hub's are in its snapshot, those made of a GGUF file in a cache.
        eos_token_ids: what ends an answer: the tokenizer's own, then those of generation_config.json or config.json.
        vocabulary: the single tokens.

    Raises:
        MissingExtra: the extra [tokenizer] is not installed.
        TokenizerError: there is no such tokenizer, a file of it is broken, or its chat template does not write what is
            said.
    """

    def __init__(
        self, name: str, *, is_plain: bool = False, parses_texts: bool = False, template_file: Path | None = None
    ) -> None:
        if name.startswith(("/", ".", "~")):
            name = os.path.expanduser(name)
            if not os.path.exists(name):
                raise TokenizerError(f"{name} is no directory")
        self.name = name
        self._tokenizer, self.directory = tokenizer_loading.load(name)
        self.vocabulary = Vocabulary(self._tokenizer.backend)
        self.eos_token_ids = self._all_eos_token_ids()
        self._parses_texts = parses_texts
        self._sources = self._tokenizer.config.templates
        self._writer = name
        if template_file is not None:
            self._sources, self._writer = {"default": template_files.read(template_file)}, str(template_file)
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
    def templates(self) -> tuple[str, ...]:
        """The sources of all that a conversation may be rendered by, with tools or without."""
        sources = {} if self._template is None else self._sources
        return tuple(sources[name] for name in ("default", "tool_use") if name in sources)

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

    def encode(
        self, text: str, *, special_tokens: bool = True, max_tokens: int | None = None, parses: bool = True
    ) -> list[int]:
        """The tokens of a whole text.

        Args:
            special_tokens: with the special ones that the tokenizer puts around it.
            parses: control tokens in it are such; otherwise they are text.

        Raises:
            PromptRefused: the text holds half a character; PromptTooLong where it has more than `max_tokens`.
        """
        check_whole(text)
        self._tokenizer.check_length(text, max_tokens)
        encode = self._tokenizer.encoder.parsed if parses else self._tokenizer.encoder.as_text
        return no_longer(encode(text, special_tokens=special_tokens), max_tokens)

    def prompt(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int | None = None,
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
        end: End = "answer",
    ) -> list[int]:
        """The tokens of a conversation whose next message will be the model's.

        Args:
            tools: what it may call.
            variables: what else the chat template is told.
            end: where it ends. "answer": behind the beginning of that message; "message": behind the last one;
                "text": behind the text of the last one, which the model goes on with.

        Raises:
            PromptRefused: the chat template refuses it, there is none, or a text holds half a character; PromptTooLong
                where it has more than `max_tokens`.
            TemplateStopped: the chat template does not come to an end.
            TokenizerError: the chat template fails on it.
        """
        return self._ids(self._rendered(messages, tools, variables, end), max_tokens)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
        end: End = "answer",
    ) -> str:
        """The text of such a conversation. Raises as `prompt` does, whatever its length."""
        rendered = self._chat_template.unmarked(self._rendered(messages, tools, variables, end))
        check_whole(rendered)
        return rendered

    def num_pinned_tokens(
        self,
        messages: Sequence[Message],
        *,
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
        prompt_ids: Sequence[int] | None = None,
    ) -> int:
        """How many tokens at the start of a prompt hold its head, whatever follows that: tools and system messages.

        Args:
            tools, variables: as of the prompt.
            prompt_ids: its tokens, where they are known.

        Returns:
            0 where it has no head, or where the chat template leaves a part of that out or puts it behind what follows.

        Raises:
            PromptRefused: the chat template refuses the messages, or there is none.
            TokenizerError: the chat template fails on them.
        """
        system = leading(messages)
        if not system and not tools:
            return 0
        template = self._template_for(tools)
        render = partial(template.render, tools=tools, variables=variables)

        def of_any() -> tuple[int, ...]:
            found = common_head(system, tools, render, template.unmarked)
            ids = self._ids(found) if found else []
            return tuple(ids[: num_common(ids, self.prompt([*system, said("-")], tools=tools, variables=variables))])

        # Some heads tell the day.
        kept = self._pins.get(key_of(system, tools, variables, date.today()), of_any)
        if prompt_ids is None:
            prompt_ids = self.prompt(messages, tools=tools, variables=variables)
        if tuple(prompt_ids[: len(kept)]) == kept:
            return len(kept)
        found = head(messages, tools, render, template.unmarked)
        return num_common(self._ids(found), prompt_ids) if found else 0

    @cached_property
    def _pins(self) -> Kept[tuple[int, ...]]:
        """Of heads, whatever follows them: each turn asks for its own."""
        return Kept(_MAX_PINNED_TOKENS)

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
        source = self._sources.get(name)
        control = None if self._parses_texts else self._tokenizer.control
        special_tokens = self._tokenizer.config.special_tokens
        return ChatTemplate(source, self._writer, special_tokens, control) if source else None

    def _template_for(self, tools: Tools | None) -> ChatTemplate:
        return self._chat_template if tools is None else self._tool_template

    def _rendered(
        self, messages: Sequence[Message], tools: Tools | None, variables: Mapping[str, Any] | None, end: End
    ) -> str:
        template = self._template_for(tools)
        render = partial(template.render, prompts_answer=end == "answer", tools=tools, variables=variables)
        return left_open(messages, render, template.unmarked) if end == "text" else render(messages)

    def _ids(self, rendered: str, max_tokens: int | None = None, *, goes_on: bool = False) -> list[int]:
        """The tokens of what the chat template wrote.

        Args:
            goes_on: it stands behind another text.
        """
        meant = self._chat_template.unmarked(rendered)
        check_whole(meant)
        self._tokenizer.check_length(meant, max_tokens)
        if goes_on or has_stand_ins(rendered):
            return no_longer(self._tokenizer.encoder.marked(rendered, goes_on=goes_on), max_tokens)
        return no_longer(self._tokenizer.encode(rendered), max_tokens)

    def _all_eos_token_ids(self) -> list[int]:
        eos = self._tokenizer.eos_token_id
        own = [] if eos is None else [eos]
        return list(dict.fromkeys(own + tokenizer_files.eos_token_ids(self.directory)))
