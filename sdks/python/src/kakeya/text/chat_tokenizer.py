"""Prompts of conversations that go on, turn by turn."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Final

from kakeya.text.chat_template import ChatTemplate, Message, Tools
from kakeya.text.prompt_tokenizer import End, PromptTokenizer
from kakeya.text.rendering.given import check_whole
from kakeya.text.rendering.head import before_first, leading, num_common, said
from kakeya.text.rendering.kept import Kept, key_of
from kakeya.text.suffixes import histories
from kakeya.text.suffixes.suffixes import Suffixes
from kakeya.text.suffixes.wanted import Wanted
from kakeya.text.text_tokenizer import no_longer
from kakeya.text.tokenizer_error import PromptRefused, PromptTooLong, TemplateStopped, TokenizerError

__all__ = [
    "ChatTokenizer",
    "End",
    "Message",
    "PromptRefused",
    "PromptTooLong",
    "TemplateStopped",
    "TokenizerError",
    "Tools",
]

_FIXED_CLOCK: Final = datetime(2000, 1, 1)
_MAX_HEAD_LETTERS: Final = 1 << 22
"""Of heads that are kept: each turn asks for its own, and one with many tools takes 30 ms to write."""


class ChatTokenizer(PromptTokenizer):
    """A tokenizer, its chat template, and how a conversation begins and goes on by them.

    Its methods may be called from several threads at once.
    """

    def head_text(
        self,
        messages: Sequence[Message],
        *,
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """What the chat template writes before the first message that is not of the head: equal heads, equal texts.

        It is told a time that is always the same. Where it leaves a part of the head out, or writes it further down, a
        first message is in the text, too, and all that stands behind that.

        Raises:
            PromptRefused: the chat template refuses the head, or there is none.
            TokenizerError: the chat template fails on it.
        """
        template = self._template_for(tools)
        render = partial(template.render, tools=tools, variables=variables, at=_FIXED_CLOCK)
        key = key_of(leading(messages), tools, variables)
        return self._heads.get(key, lambda: before_first(messages, tools, render, template.unmarked))

    @cached_property
    def writes_tools(self) -> bool:
        """Whether the chat template tells the model what it may call. Raises TemplateStopped."""
        return any(self._writes_name(opening, histories.NAMED_TOOLS) for opening in _OPENINGS)

    @cached_property
    def takes_inner_system(self) -> bool:
        """Whether the chat template takes system messages within a conversation, too. Raises TemplateStopped."""
        inner = [{"role": "assistant", "content": "-"}, {"role": "system", "content": histories.TOOL_NAME}, said("-")]
        return any(self._writes_name([*opening, *inner]) for opening in _OPENINGS)

    def _writes_name(self, messages: Sequence[Message], tools: Tools | None = None) -> bool:
        """Whether a text that no template writes by itself comes out."""
        if not self.has_template:
            return False
        try:
            return histories.TOOL_NAME.casefold() in self.render(messages, tools=tools).casefold()
        except TemplateStopped:
            raise
        except TokenizerError:  # it takes no such conversation
            return False

    @cached_property
    def end_of_turn_id(self) -> int | None:
        """The control token that the chat template ends an answer with, right behind it or behind other such tokens.

        None where it writes none, or there is no chat template.
        """
        return None if self._template is None else self._control_id(self._suffixes.end)

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
        """The tokens that the chat template writes behind an answer, up to and with the beginning of the next one.

        What was said before the answer is rendered again only where the chat template makes them depend on that.

        Args:
            index: of the answer among the messages.
            closed: the history ends with `end_of_turn_id`. Otherwise it is without, and the tokens begin with it.
            repeats_answer: the history ends where the answer begins, and the tokens begin with that: with its text as
                it was said, or with its calls as the chat template writes them. `closed` says nothing then.
            tools, variables, max_tokens: as of a prompt.

        Returns:
            None where the chat template does not write one message behind another, so that there are no such tokens.

        Raises:
            PromptRefused, TemplateStopped, TokenizerError: as `prompt` does; not always for what was said before.
        """
        suffixes = self._suffixes_for(tools)
        text = suffixes.text(Wanted(messages, index, repeats_answer, tools, variables, datetime.now()))
        if text is None:
            return None
        if repeats_answer or not closed:
            return self._ids(text, max_tokens, goes_on=True)
        return self._behind_end(suffixes, text, max_tokens)

    def behind_either(
        self,
        messages: Sequence[Message],
        index: int,
        *,
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
    ) -> tuple[list[int], int] | None:
        """As `behind`, where it is not known whether the history ends with `end_of_turn_id`.

        Returns:
            The tokens where it does not, and how many of them, from the first, are in the history where it does. None
            where these are not the same tokens, too.

        Raises:
            PromptRefused, TemplateStopped, TokenizerError: as `behind` does.
        """
        suffixes = self._suffixes_for(tools)
        text = suffixes.text(Wanted(messages, index, False, tools, variables, datetime.now()))
        if text is None:
            return None
        ids = self._ids(text, max_tokens, goes_on=True)
        if suffixes.end == self._suffixes.end and text.startswith(suffixes.end) and ids[0] == self.end_of_turn_id:
            return ids, 1  # a text that begins with a control token is encoded alike, whatever stands before it
        closed = self._behind_end(suffixes, text, max_tokens)
        if closed is None:
            return None
        num_known = len(ids) - len(closed)
        return (ids, num_known) if num_known > 0 and ids[num_known:] == closed else None

    def _suffixes_for(self, tools: Tools | None) -> Suffixes:
        return self._suffixes if tools is None else self._tool_suffixes

    def _behind_end(self, suffixes: Suffixes, text: str, max_tokens: int | None) -> list[int] | None:
        """The tokens of a suffix that follow the one which ends an answer."""
        behind = suffixes.from_end(text) if suffixes.end == self._suffixes.end else None
        if behind is None:
            return None
        self._tokenizer.check_length(self._chat_template.unmarked(behind), max_tokens)
        ids = self._ids(behind)  # with the token that is there already: what follows it is encoded as behind it
        return no_longer(ids[1:], max_tokens) if ids[0] == self.end_of_turn_id else None

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
            return num_common(alone, self.first_prompt("-", system))
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

    @cached_property
    def _heads(self) -> Kept[str]:
        return Kept(_MAX_HEAD_LETTERS)

    @cached_property
    def _suffixes(self) -> Suffixes:
        return self._suffixes_of(self._chat_template)

    @cached_property
    def _tool_suffixes(self) -> Suffixes:
        if self._tool_template is self._template:
            return self._suffixes
        return self._suffixes_of(self._tool_template)

    def _suffixes_of(self, template: ChatTemplate) -> Suffixes:
        control = self._tokenizer.control.contents
        eos = [control[id_] for id_ in self.eos_token_ids if id_ in control]
        return Suffixes(template, [*control.values()], eos)

    def _control_id(self, content: str) -> int | None:
        return next((id_ for id_, each in self._tokenizer.control.contents.items() if each == content), None)


def _opening(text: str, system: str | None) -> list[Message]:
    return [{"role": "system", "content": system}, said(text)] if system else [said(text)]


_OPENINGS: Final = (_opening("-", None), _opening("-", "-"))
