"""A served model's tokenizer, as requests need it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kakeya.text.chat_tokenizer import ChatTokenizer, Message, TokenizerError
from kakeya_shared import installed_models, plugins
from kakeya_shared.contract import tokenizer_digest

_OPENS_THOUGHT: Final = "<think>"
_NUM_LAST_TOKENS = 16
"""Of a prompt: where it opens a thought, that is among them, even if each letter is a token."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a session is told before it answers.

    Attributes:
        num_pinned: leading tokens that hold its system messages; they should be kept for ever.
        is_chat: it was rendered from messages.
    """

    token_ids: list[int]
    num_pinned: int = 0
    is_chat: bool = False


class ModelTokenizer:
    """Loads within seconds and, from a hub, over the network: not on the event loop. Then any thread may use it.

    Args:
        source: a directory with the model's files, an installed model's name, or a model id of the Hugging Face Hub.
        parses_texts: control tokens in the texts of messages are such; otherwise they are text.
        parses_prompts: likewise in whole texts.

    Attributes:
        name: the directory or hub id that was loaded.
        digest: of its tokenizer.json.
        eos_token_ids: what ends an answer.
        num_token_ids: ids that it may make of a text are below this.
        has_template: whether it can write messages as a prompt.
        leaves_out_system: whether that leaves out system messages.
        thinks: whether its model writes thoughts before an answer, between <think> and </think>.
        vocabulary: the single tokens.

    Raises:
        TokenizerError: there is none, a file of it is broken, or the installed model is, or its chat template does not
            write what is said.
    """

    def __init__(self, source: str, *, parses_texts: bool = False, parses_prompts: bool = True) -> None:
        self._parses_prompts = parses_prompts
        try:
            self._tokenizer = ChatTokenizer(installed_models.resolve(source), parses_texts=parses_texts)
            self.digest = tokenizer_digest.tokenizer_digest(self._tokenizer.directory)
        except (plugins.PluginError, tokenizer_digest.TokenizerError) as error:
            raise TokenizerError(str(error)) from error
        self.name = self._tokenizer.name
        self.eos_token_ids = self._tokenizer.eos_token_ids
        self.num_token_ids = self._tokenizer.num_token_ids
        self.has_template = self._tokenizer.has_template
        self.leaves_out_system = self._tokenizer.leaves_out_system
        self.thinks = _OPENS_THOUGHT in self._tokenizer.template
        self.vocabulary = self._tokenizer.vocabulary

    def chat_prompt(self, messages: Sequence[Message], *, max_tokens: int | None = None) -> Prompt:
        """The messages as the chat template writes them.

        Raises:
            PromptRefused: they cannot be written: the client's fault; PromptTooLong where that has more than
                `max_tokens`.
            TemplateStopped: the chat template does not come to an end.
            TokenizerError: the chat template fails on them: its own fault.
        """
        token_ids = self._tokenizer.prompt(messages, max_tokens=max_tokens)
        return Prompt(token_ids, self._tokenizer.num_pinned_tokens(messages), is_chat=True)

    def text_prompt(self, text: str, *, max_tokens: int | None = None) -> Prompt:
        """A whole text.

        Raises:
            PromptRefused: it holds half a character; PromptTooLong where it has more than `max_tokens`.
        """
        return Prompt(self._tokenizer.encode(text, max_tokens=max_tokens, parses=self._parses_prompts))

    def decode(self, token_ids: list[int]) -> str:
        """Text without special tokens."""
        return self._tokenizer.decode(token_ids)

    def starts_in_thought(self, prompt_ids: Sequence[int]) -> bool:
        """Whether the prompt has opened a thought already, so that what the model says is within it."""
        end = self._tokenizer.decode(list(prompt_ids[-_NUM_LAST_TOKENS:]), special_tokens=True)
        return end.rstrip().endswith(_OPENS_THOUGHT)
