"""Who speaks in a bench: which tokenizer, which messages, and what ends an answer."""

from dataclasses import dataclass
from pathlib import Path

from kakeya import AsyncClient, AsyncSession
from kakeya.cli.flags import tokenizer_choice
from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya_bench.conversation import facts, prompts
from kakeya_bench.conversation.facts import Facts
from kakeya_bench.conversation.prompts import Prompts, RandomTokens, Texts
from kakeya_bench.conversation.runtime import Workers
from kakeya_bench.conversation.settings import BenchSettings


@dataclass(frozen=True)
class Speech:
    """What conversations are made of.

    Attributes:
        model: who is spoken to, as `create_session` takes it; None for the default.
        tokenizer: None where random ids are said.
        vocab_size: random ids are below it.
    """

    settings: BenchSettings
    model: str | None
    tokenizer: ChatTokenizer | None
    vocab_size: int

    @property
    def eos_token_ids(self) -> list[int]:
        """What ends an answer."""
        if self.tokenizer is None or self.settings.ignore_eos:
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
        settings = self.settings
        if self.tokenizer is None:
            assert settings.random_tokens  # noqa: S101  # there is a tokenizer else
            return RandomTokens(settings.random_tokens, self.vocab_size, seed=settings.seed, conversation=conversation)
        said = prompts.messages(settings.prompts, seed=settings.seed, conversation=conversation)
        return Texts(self.tokenizer, said)

    def rehearse(self) -> None:
        """Says a message and the one after it to nobody. Raises NoPrompts, TokenizerError."""
        prompts = self.prompts(0)
        for _ in range(2):
            prompts.next_turn(None)

    async def learn(
        self, session: AsyncSession, workers: Workers, *, config: Path | None = None, kv_dtype: str | None = None
    ) -> Facts:
        """What is known of a session that was just opened, see `facts.learn`.

        Raises:
            KakeyaError
            TokenizerError: the tokenizer is another model's.
        """
        self.check(session)
        return await facts.learn(session, workers, config=config, beside=self.directory, kv_dtype=kv_dtype)

    def check(self, session: AsyncSession) -> None:
        """Raises TokenizerError where the tokenizer is another model's."""
        known = session.vocab_size
        if self.tokenizer is not None and known is not None and self.tokenizer.num_token_ids > known:
            reason = f"{self.tokenizer.num_token_ids:,} ids, and the model knows {known:,}"
            raise tokenizer_choice.of_another_model(self.tokenizer.name, reason)


async def choose(client: AsyncClient, settings: BenchSettings) -> Speech:
    """What the settings ask for, with the served model's tokenizer where they name none.

    Raises:
        KakeyaError
        TokenizerError: it is not known which model or tokenizer is meant, or there is no such tokenizer.
    """
    model = tokenizer_choice.model_to_answer(await client.list_models(), settings.model)
    tokenizer = None
    if settings.random_tokens is None:
        name = settings.tokenizer
        place = tokenizer_choice.resolve(name) if name else tokenizer_choice.installed_tokenizer(model.name)
        tokenizer = ChatTokenizer(place, is_plain=settings.no_chat_template)
    return Speech(settings, model.name, tokenizer, model.vocab_size)
