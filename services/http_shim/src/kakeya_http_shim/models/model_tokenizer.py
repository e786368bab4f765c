"""A served model's tokenizer, as requests need it."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from kakeya.text.chat_tokenizer import ChatTokenizer, End, Message, TemplateStopped, TokenizerError, Tools
from kakeya.text.rendering.kept import Kept
from kakeya_http_shim.models.prompt import Prompt, Thinking
from kakeya_shared import installed_models, plugins
from kakeya_shared.contract import tokenizer_digest

_OPENS_THOUGHT: Final = "<think>"
_CLOSES_THOUGHT: Final = "</think>"

_MAX_BEGINNINGS = 64
"""Variables of chat templates that are known; some few are in use at a time."""

_MAX_LENGTHS = 4096
"""Conversations whose beginning's length is known."""

_NUM_LAST_TOKENS = 16
"""Of a prompt: where it opens a thought, that is among them, even if each letter is a token."""


class ModelTokenizer:
    """Loads within seconds and, from a hub, over the network: not on the event loop. Then any thread may use it.

    Args:
        source: a directory with the model's files, a GGUF file, an installed model's name, or an id of the Hub.
        parses_texts: control tokens in the texts of messages are such; otherwise they are text.
        parses_prompts: likewise in whole texts.
        template_file: with the chat template to take in place of the tokenizer's own.

    Attributes:
        name: the directory or hub id that was loaded.
        digest: of its tokenizer.json.
        eos_token_ids: what ends an answer.
        num_token_ids: ids that it may make of a text are below this.
        has_template: whether it can write messages as a prompt.
        leaves_out_system: whether that leaves out system messages.
        writes_tools: whether it tells the model what it may call.
        takes_inner_system: whether it takes system messages within a conversation, not at its beginning only.
        thinks: whether its model writes thoughts before an answer, between <think> and </think>.
        vocabulary: the single tokens.
        parses_texts: as above.

    Raises:
        TokenizerError: there is none, a file of it is broken, or the installed model is, or its chat template does not
            write what is said.
    """

    def __init__(
        self,
        source: str,
        *,
        parses_texts: bool = False,
        parses_prompts: bool = True,
        template_file: Path | None = None,
    ) -> None:
        self._parses_prompts = parses_prompts
        self._begins: dict[str, Thinking] = {}
        try:
            self._tokenizer = ChatTokenizer(
                installed_models.resolve(source), parses_texts=parses_texts, template_file=template_file
            )
            self.digest = tokenizer_digest.tokenizer_digest(self._tokenizer.directory)
        except (plugins.PluginError, tokenizer_digest.TokenizerError) as error:
            raise TokenizerError(str(error)) from error
        self.name = self._tokenizer.name
        self.eos_token_ids = self._tokenizer.eos_token_ids
        self.num_token_ids = self._tokenizer.num_token_ids
        self.has_template = self._tokenizer.has_template
        self.leaves_out_system = self._tokenizer.leaves_out_system
        self.writes_tools = self._tokenizer.writes_tools
        self.takes_inner_system = self._tokenizer.takes_inner_system
        self.thinks = _OPENS_THOUGHT in self._tokenizer.template
        self.vocabulary = self._tokenizer.vocabulary
        self.parses_texts = parses_texts

    def chat_prompt(
        self,
        messages: Sequence[Message],
        *,
        end: End = "answer",
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
    ) -> Prompt:
        """The messages as the chat template writes them.

        Args:
            end: where it ends, as `ChatTokenizer.prompt` has it.
            tools: what the model may call.
            variables: what else the template is told.

        Raises:
            PromptRefused: they cannot be written: the client's fault; PromptTooLong where that has more than
                `max_tokens`.
            TemplateStopped: the chat template does not come to an end.
            TokenizerError: the chat template fails on them: its own fault.
        """
        told: dict[str, Any] = {"tools": tools, "variables": variables}
        token_ids = self._tokenizer.prompt(messages, max_tokens=max_tokens, end=end, **told)
        num_pinned = self._tokenizer.num_pinned_tokens(messages, prompt_ids=token_ids, **told)
        return Prompt(token_ids, num_pinned, is_chat=True, open_text=_text(messages[-1]) if end == "text" else None)

    def chat_text(
        self,
        messages: Sequence[Message],
        *,
        end: End = "answer",
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """What `chat_prompt` has the tokens of. Raises as it does, whatever the length."""
        return self._tokenizer.render(messages, tools=tools, variables=variables, end=end)

    @property
    def templates(self) -> tuple[str, ...]:
        """The sources of all chat templates that may write a part of a conversation."""
        return self._tokenizer.templates

    @property
    def tool_template(self) -> str:
        """The source of the chat template that writes conversations with tools; "" where there is none."""
        return self.templates[-1] if self.templates else ""

    @property
    def end_of_turn_id(self) -> int | None:
        """The token that the chat template writes right behind an answer; None where it writes none."""
        return self._tokenizer.end_of_turn_id

    def head_text(
        self,
        messages: Sequence[Message],
        *,
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """What the chat template writes before the first message that is not of the head, at a time that stands still.

        Raises:
            TokenizerError: as `chat_prompt` does.
        """
        return self._tokenizer.head_text(messages, tools=tools, variables=variables)

    def behind(
        self,
        messages: Sequence[Message],
        index: int,
        *,
        closed: bool,
        repeats_answer: bool = False,
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
    ) -> list[int] | None:
        """What the chat template writes behind an answer, up to and with the beginning of the next one.

        Args:
            index: of the answer among the messages.
            closed: the history ends with `end_of_turn_id`; else the tokens begin with that.
            repeats_answer: the history ends where the answer begins, and the tokens begin with it, as it was said.

        Returns:
            None where the chat template does not write one message behind another: the whole is to be rendered.

        Raises:
            PromptRefused, TemplateStopped, TokenizerError: as `chat_prompt` does.
        """
        return self._tokenizer.behind(
            messages,
            index,
            closed=closed,
            repeats_answer=repeats_answer,
            tools=tools,
            variables=variables,
            max_tokens=max_tokens,
        )

    def behind_either(
        self,
        messages: Sequence[Message],
        index: int,
        *,
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
    ) -> tuple[list[int], int] | None:
        """As `behind`, whether the history ends with `end_of_turn_id` or not.

        Returns:
            What is behind an answer without it, and how many of these tokens there are already with it; None: the whole
            is to be rendered, or the two are not as simple.
        """
        return self._tokenizer.behind_either(messages, index, tools=tools, variables=variables, max_tokens=max_tokens)

    def text_prompt(self, text: str, *, max_tokens: int | None = None) -> Prompt:
        """A whole text. Raises as `encode` does."""
        return Prompt(self.encode(text, max_tokens=max_tokens), text=text)

    def encode(
        self, text: str, *, special_tokens: bool = True, max_tokens: int | None = None, parses: bool | None = None
    ) -> list[int]:
        """The tokens of a whole text.

        Args:
            special_tokens: with those that the tokenizer puts around it.
            parses: control tokens in it are such; None: as prompts are.

        Raises:
            PromptRefused: it holds half a character; PromptTooLong where it has more than `max_tokens`.
        """
        parses = self._parses_prompts if parses is None else parses
        return self._tokenizer.encode(text, special_tokens=special_tokens, max_tokens=max_tokens, parses=parses)

    def decode(self, token_ids: list[int], *, special_tokens: bool = False) -> str:
        """Text, with the special tokens or without."""
        return self._tokenizer.decode(token_ids, special_tokens=special_tokens)

    @cached_property
    def lengths(self) -> Kept[tuple[int, int]]:
        """How many tokens the first messages of conversations are, and how many of these are pinned."""
        return Kept(2 * _MAX_LENGTHS)

    @cached_property
    def thought_marks(self) -> tuple[int, int] | None:
        """The tokens that open and close a thought; None where either is more than one."""
        opens, closes = (self._tokenizer.encode(tag, special_tokens=False) for tag in (_OPENS_THOUGHT, _CLOSES_THOUGHT))
        return (opens[0], closes[0]) if len(opens) == len(closes) == 1 else None

    def decode_with(self, token_ids: Sequence[int], shown: frozenset[int]) -> str:
        """Text, without special tokens but for these."""
        if not shown:
            return self.decode(list(token_ids))
        kept = [each for each in token_ids if each in shown or not self.vocabulary.is_special(each)]
        return self.decode(kept, special_tokens=True)

    def starts_in_thought(self, prompt_ids: Sequence[int]) -> bool:
        """Whether the prompt has opened a thought already, so that what the model says is within it."""
        end = self._tokenizer.decode(list(prompt_ids[-_NUM_LAST_TOKENS:]), special_tokens=True)
        return end.rstrip().endswith(_OPENS_THOUGHT)

    def begins(self, variables: Mapping[str, Any] | None) -> Thinking:
        """How answers begin where the chat template is told this, as that of a short conversation does.

        Raises:
            TemplateStopped: the chat template does not come to an end.
        """
        if not self.thinks:
            return "not"
        key = json.dumps(variables or {}, sort_keys=True)
        if key not in self._begins:
            if len(self._begins) >= _MAX_BEGINNINGS:
                self._begins.clear()
            self._begins[key] = self._beginning(variables)
        return self._begins[key]

    def _beginning(self, variables: Mapping[str, Any] | None) -> Thinking:
        try:
            prompt = self.chat_prompt([{"role": "user", "content": "-"}], variables=variables)
        except TemplateStopped:
            raise
        except TokenizerError:  # it takes no such conversation
            return "perhaps"
        return self.thinking(prompt)

    def thinking(self, prompt: Prompt) -> Thinking:
        """How the answer to a prompt begins."""
        if not (self.thinks and prompt.is_chat):
            return "not"
        if prompt.begins is not None:
            return prompt.begins
        if prompt.open_text is not None and (said := prompt.open_text.strip()):
            return "inside" if said.rfind(_OPENS_THOUGHT) > said.rfind(_CLOSES_THOUGHT) else "not"
        return "inside" if self.starts_in_thought(prompt.token_ids) else "perhaps"


def _text(message: Message) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content or ())
