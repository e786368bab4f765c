"""Who speaks in a bench: which tokenizer, which messages, and what ends an answer."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kakeya import AsyncClient, AsyncSession
from kakeya.bench import prompts
from kakeya.bench.conversation_flags import ConversationOptions
from kakeya.bench.prompts import Prompts, RandomTokens, Texts
from kakeya.cli.flags import tokenizer_choice
from kakeya.text.chat_tokenizer import ChatTokenizer


@dataclass(frozen=True)
class Speech:
    """What conversations are made of.

    Attributes:
        model: who is spoken to, as `create_session` takes it; None for the default.
        tokenizer: None where random ids are said.
        vocab_size: random ids are below it.
    """

    options: ConversationOptions
    model: str | None
    tokenizer: ChatTokenizer | None
    vocab_size: int

    @property
    def eos_token_ids(self) -> list[int]:
        """What ends an answer."""
        if self.tokenizer is None or self.options.ignores_eos:
            return []
        return self.tokenizer.eos_token_ids

    @property
    def directory(self) -> Path | None:
        """Of the tokenizer's files, where the model's config.json often is; None where there is none."""
        directory = self.tokenizer.directory if self.tokenizer else None
        return directory if directory and (directory / "config.json").is_file() else None

    def prompts(self, conversation: int) -> Prompts:
        """What is said in one conversation, from its start; the same for the same number.

        Raises:
            NoPrompts: the file of messages cannot be read.
        """
        options = self.options
        if self.tokenizer is None:
            assert options.num_random_tokens  # noqa: S101  # there is a tokenizer else
            return RandomTokens(
                options.num_random_tokens, self.vocab_size, seed=options.seed, conversation=conversation
            )
        return Texts(self.tokenizer, self._messages(conversation))

    def check(self, session: AsyncSession) -> None:
        """Raises TokenizerError where the tokenizer is another model's."""
        known = session.vocab_size
        if self.tokenizer is not None and known is not None and self.tokenizer.num_token_ids > known:
            reason = f"{self.tokenizer.num_token_ids:,} ids, and the model knows {known:,}"
            raise tokenizer_choice.of_another_model(self.tokenizer.name, reason)

    def _messages(self, conversation: int) -> Iterator[str]:
        options = self.options
        if options.prompts:
            return prompts.of_file(options.prompts, seed=options.seed, conversation=conversation)
        return prompts.written(seed=options.seed, conversation=conversation)


async def choose(client: AsyncClient, options: ConversationOptions) -> Speech:
    """What the options ask for, with the served model's tokenizer where they name none.

    Raises:
        KakeyaError
        TokenizerError: it is not known which model or tokenizer is meant, or there is no such tokenizer.
    """
    model = tokenizer_choice.model_to_answer(await client.list_models(), options.model)
    tokenizer = None
    if options.num_random_tokens is None:
        name = options.tokenizer
        place = tokenizer_choice.resolve(name) if name else tokenizer_choice.installed_tokenizer(model.name)
        tokenizer = ChatTokenizer(place, is_plain=not options.uses_template)
    return Speech(options, model.name, tokenizer, model.vocab_size)
