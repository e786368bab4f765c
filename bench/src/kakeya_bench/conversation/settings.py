"""What benches are told: the runtime, the model, what is said, where the report goes."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self

from pydantic import model_validator
from pydantic_settings import SettingsConfigDict

from kakeya.cli.flags import connection_flags
from kakeya.cli.flags.connection import Connection
from kakeya_shared.settings.service import ServiceSettings, setting

REPORT = "the report"


def _variable(name: str) -> str | None:
    return os.environ.get(name) or None


class RuntimeSettings(ServiceSettings):
    """Base of a bench's settings: the runtime, and the report. Each is a flag, and a variable KAKEYA_BENCH_*."""

    GROUPS: ClassVar[Mapping[str, str]] = {
        "the runtime": "address api_key_file tls_ca tls_cert tls_key model sink window timeout_s",
        "the conversation": "max_tokens seed",
        REPORT: "output print_json",
    }

    address: str = setting(
        help="the router; else the variable KAKEYA_ADDRESS",
        default_factory=lambda: _variable("KAKEYA_ADDRESS") or connection_flags.DEFAULT_ADDRESS,
        metavar="HOST:PORT",
    )
    api_key_file: Path | None = setting(
        None,
        "file with the key, where the router asks for one; else the variable KAKEYA_API_KEY. There is no flag for the "
        "key itself, since flags are seen by everybody on the host",
        metavar="FILE",
    )
    tls_ca: Path | None = setting(
        help="certificate authorities of the router, in PEM: the connection uses TLS; else the variable KAKEYA_TLS_CA",
        default_factory=lambda: _variable("KAKEYA_TLS_CA"),
        metavar="FILE",
    )
    tls_cert: Path | None = setting(
        help="certificate chain to present to the router, in PEM; else the variable KAKEYA_TLS_CERT",
        default_factory=lambda: _variable("KAKEYA_TLS_CERT"),
        metavar="FILE",
    )
    tls_key: Path | None = setting(
        help="private key of --tls-cert, in PEM; else the variable KAKEYA_TLS_KEY",
        default_factory=lambda: _variable("KAKEYA_TLS_KEY"),
        metavar="FILE",
    )
    model: str | None = setting(None, "model to be served by, where the runtime serves several", metavar="MODEL")
    sink: int | None = setting(None, "sinks of a session; else the worker's", unit="tokens", ge=0)
    window: int | None = setting(None, "window of a session; else the worker's", unit="tokens", ge=1)
    timeout_s: float = setting(
        600.0,
        "of an append, and of a generation",
        unit="seconds",
        reason="long enough for slow hosts",
        gt=0,
        allow_inf_nan=False,
    )
    max_tokens: int = setting(64, "most tokens of an answer", unit="tokens", ge=1)
    seed: int = setting(0, "of everything that is drawn", ge=0)
    output: Path | None = setting(
        None, "directory of the report; else one in the working directory that is named for the time", metavar="DIR"
    )
    print_json: bool = setting(False, "print the report's document on standard output in place of the summary")

    @classmethod
    def configured(cls, *, command: str) -> SettingsConfigDict:
        """The model_config of `kakeya bench COMMAND`: all benches have the same variables."""
        settings = super().configured(command="bench")
        settings["cli_prog_name"] = f"kakeya bench {command}"
        settings["cli_shortcuts"] = {"print-json": "json"}
        settings["cli_implicit_flags"] = "toggle"  # there are none to be turned off
        return settings

    @classmethod
    def bench(cls) -> str:
        """What is typed, e.g. `kakeya bench session`."""
        return cls._program()

    @cached_property
    def connection(self) -> Connection:
        """The connection that was asked for; warns where the key can be read on the way. Raises BadConnectionFlag."""
        return connection_flags.read(self)

    @cached_property
    def directory(self) -> Path:
        """Where the report goes."""
        return self.output or Path(f"{self.bench().replace(' ', '-')}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")

    def document(self) -> dict[str, object]:
        """As it stands in a report."""
        same = self.model_dump(include={"model", "max_tokens", "sink", "window", "seed"})
        return {**same, "timeout_seconds": self.timeout_s}


class BenchSettings(RuntimeSettings):
    """Base of the settings of a bench that says messages, or random ids in place of them."""

    GROUPS: ClassVar[Mapping[str, str]] = {
        "the conversation": "tokenizer random_tokens prompts no_chat_template ignore_eos",
    }

    tokenizer: str | None = setting(
        help="directory, installed model or Hub id of the tokenizer; else the variable KAKEYA_TOKENIZER, else the "
        "installed model of the name that is served",
        default_factory=lambda: _variable("KAKEYA_TOKENIZER"),
        metavar="MODEL",
    )
    random_tokens: int | None = setting(
        None, "append so many random ids a turn in place of messages; needs no tokenizer", ge=1
    )
    prompts: Path | None = setting(None, "file of messages, one a line; else the bench writes its own", metavar="FILE")
    no_chat_template: bool = setting(False, "send messages as they are")
    ignore_eos: bool = setting(False, "answers all have that length, whatever the model would say")

    @model_validator(mode="after")
    def _one_kind_of_speech(self) -> Self:
        # KAKEYA_TOKENIZER is for all commands, and says nothing of this run.
        if self.random_tokens and (self.prompts or "tokenizer" in self.model_fields_set):
            raise ValueError("--random-tokens goes without --prompts and --tokenizer")
        return self

    def document(self) -> dict[str, object]:
        """As in `RuntimeSettings`, with what is said."""
        return super().document() | {
            "tokenizer": self.tokenizer,
            "num_random_tokens": self.random_tokens,
            "prompts": str(self.prompts) if self.prompts else None,
            "uses_template": not self.no_chat_template,
            "ignores_eos": self.ignore_eos,
        }
