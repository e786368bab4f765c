"""Who speaks in a bench: which tokenizer, which messages, what ends an answer; and what is known before."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kakeya import AsyncClient, AsyncSession, kv_bytes
from kakeya.cli.flags import installed_models, tokenizer_choice
from kakeya.cli.flags.installed_models import BrokenModel
from kakeya.cli.output.document import document
from kakeya.kv_bytes import ConfigError
from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya_bench.conversation import prompts
from kakeya_bench.conversation.prompts import Prompts, RandomTokens, Texts
from kakeya_bench.conversation.runtime import Workers
from kakeya_bench.conversation.settings import BenchSettings


@dataclass(frozen=True, slots=True)
class Facts:
    """The model, how it is served, and what its KV must weigh.

    Attributes:
        kv_bytes_per_token: KV of one token by the model's config.json; None where that cannot be computed.
        why_not: why it cannot.
        worker: what the router says of the first session's worker; empty where it does not say.
    """

    name: str
    fingerprint: str
    exact: bool
    sink: int
    window: int
    reserved_bytes: int
    kv_dtype: str | None
    kv_bytes_per_token: int | None
    why_not: str
    worker: Mapping[str, object] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """As it stands in a report."""
        plateau = (self.sink + self.window) * self.kv_bytes_per_token if self.kv_bytes_per_token else None
        known = asdict(self) | {"kv_live_bytes_at_plateau": plateau}
        return {name: value for name, value in known.items() if name != "why_not"}


async def learn(
    session: AsyncSession,
    workers: Workers,
    *,
    config: Path | None = None,
    beside: Path | None = None,
    kv_dtype: str | None = None,
) -> Facts:
    """What a session that was just opened, its worker and the model's files say. Raises KakeyaError.

    Args:
        config: the config.json that was named, or its directory.
        beside: where else it may be: the tokenizer's directory.
        kv_dtype: what was named; None takes the worker's word.
    """
    assert session.model is not None  # noqa: S101  # it was opened here, and so are sink and window
    assert session.sink is not None  # noqa: S101
    assert session.window is not None  # noqa: S101
    worker = await workers.find((await session.info()).worker)
    dtype = kv_dtype or (worker.dtype if worker else None) or None
    weight, why_not = bytes_per_token(session.model, dtype, config, beside)
    return Facts(
        name=session.model,
        fingerprint=session.fingerprint or "",
        exact=bool(session.exact),
        sink=session.sink,
        window=session.window,
        reserved_bytes=session.reserved_bytes or 0,
        kv_dtype=dtype,
        kv_bytes_per_token=weight,
        why_not=why_not,
        worker=document(worker) if worker else {},
    )


def bytes_per_token(
    model: str, dtype: str | None, config: Path | None, beside: Path | None = None
) -> tuple[int | None, str]:
    """KV of one token, by the first of these files that there is, else by the installed model's; or why not."""
    if dtype is None:
        return None, "the type of K and V is not known: name it with --kv-dtype, or take an operator's key"
    try:
        place = config or beside or installed_models.directory(model)
        if place is None:
            return None, f"the config.json of {model!r} is not known: name it with --config"
        return kv_bytes.kv_bytes_per_token(kv_bytes.read_config(place), dtype), ""
    except (ConfigError, BrokenModel) as error:
        return None, str(error)


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
        """What is known of a session that was just opened, see `learn`.

        Raises:
            KakeyaError
            TokenizerError: the tokenizer is another model's.
        """
        self.check(session)
        return await learn(session, workers, config=config, beside=self.directory, kv_dtype=kv_dtype)

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
