"""Settings of a service: each field of a `ServiceSettings` is a flag and an environment variable at once.

The field's description names its unit and the reason of its default; the table of all of them in
docs/configuration.md is generated from the classes (`make docs`).
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationError, model_validator
from pydantic_settings import BaseSettings, CliApp, NoDecode, SettingsConfigDict

from kakeya_shared.settings import flag_help
from kakeya_shared.settings.addresses import Address, AddressOrNone, HostPort, is_loopback

EXIT_USAGE = 2
LONGEST_APPEND_TOKENS = 1_000_000
"""That a router may be told to allow, and every worker's messages must hold."""


def append_bytes(num_tokens: int) -> int:
    """The largest message of an append: a token id takes up to 5 bytes, everything else far under 4 KiB."""
    return 5 * num_tokens + 4096


def setting(
    default: Any = ...,
    help: str = "",
    *,
    unit: str = "",
    reason: str = "",
    metavar: str = "",
    group: str = "",
    **limits: Any,
) -> Any:
    """A field of `ServiceSettings`.

    Args:
        default: the value when neither flag nor variable is given; none makes the setting required.
        help: what it is for.
        unit: of the value, e.g. "seconds", "bytes".
        reason: why the default is what it is.
        metavar: what is typed for the value, e.g. "HOST:PORT".
        group: the heading of the help under which the flag stands.
        limits: pydantic's constraints (`gt`, `ge`, `le`, ...).
    """
    description = help + (f" [{unit}]" if unit else "") + (f". Default: {reason}" if reason else "")
    return Field(
        default,
        description=description,
        json_schema_extra={"help": help, "unit": unit, "reason": reason, "metavar": metavar, "group": group},
        **limits,
    )


def split(given: object) -> object:
    """One text with commas, as a variable has it, into its parts."""
    return [part.strip() for part in given.split(",") if part.strip()] if isinstance(given, str) else given


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split)]
"""A setting of several: a flag for each, or separated by commas."""


class ServiceSettings(BaseSettings):
    """Base of a command's settings. A flag wins over its variable, a variable over the default.

    Attributes:
        GROUPS: headings of the help, and the names of the settings that stand below each.
        EXAMPLES: command lines for the end of the help.
    """

    GROUPS: ClassVar[Mapping[str, str]] = {}
    EXAMPLES: ClassVar[Sequence[str]] = ()

    @classmethod
    def configured(cls, *, command: str) -> SettingsConfigDict:
        """The model_config of `kakeya COMMAND`: flags in kebab case, variables KAKEYA_COMMAND_*."""
        return SettingsConfigDict(
            env_prefix=f"KAKEYA_{command.upper()}_",
            cli_prog_name=f"kakeya {command}",
            cli_kebab_case=True,
            cli_implicit_flags=True,
            cli_hide_none_type=True,
            cli_avoid_json=True,
            cli_parse_none_str="\0",  # no word of a command line stands for None, not even "None"
            env_ignore_empty=True,  # how compose spells an unset variable
        )

    @classmethod
    def parse(cls, argv: list[str]) -> Self:
        """Reads flags and environment; on a bad value prints one line a field and exits with status 2."""
        try:
            return CliApp.run(cls, cli_args=whole_words(argv), cli_settings_source=flag_help.source(cls))
        except ValidationError as error:
            for problem in error.errors():
                print(f"{cls._program()}: error: {cls._place(problem['loc'])}: {problem['msg']}", file=sys.stderr)
        raise SystemExit(EXIT_USAGE)

    @classmethod
    def _program(cls) -> str:
        return cls.model_config.get("cli_prog_name") or cls.__name__

    @classmethod
    def _place(cls, location: tuple[int | str, ...]) -> str:
        if not location:
            return "settings"
        field = str(location[0])
        return f"--{field.replace('_', '-')} ({cls.variable(field)})"

    @classmethod
    def variable(cls, name: str) -> str:
        """The variable of a setting."""
        return f"{cls.model_config.get('env_prefix', '')}{name}".upper()


def whole_words(argv: list[str]) -> list[str]:
    """Flags that pydantic-settings would cut: it reads `--flag=value` up to the end of the value's first line."""
    words = []
    for word in argv:
        flag, _, value = word.partition("=")
        is_cut = word.startswith("--") and "\n" in value and not value.startswith("-")
        words += [flag, value] if is_cut else [word]
    return words


class ListenerSettings(ServiceSettings):
    """Base of the settings of a service that listens: who may reach it, TLS, and its log.

    Subclasses have a field `bind`.
    """

    GROUPS: ClassVar[Mapping[str, str]] = {
        "who may connect": "insecure tls_cert tls_key tls_client_ca",
        "the process": "log_level log_format",
    }
    insecure: bool = setting(
        False,
        "listen outside loopback although every host that reaches the port may use the service",
        reason="that must be decided, not overlooked",
    )
    tls_cert: Path | None = setting(
        None, "certificate chain in PEM; read again when the file changes", unit="file", reason="none, plaintext"
    )
    tls_key: Path | None = setting(None, "private key of --tls-cert in PEM", unit="file", reason="none")
    tls_client_ca: Path | None = setting(
        None,
        "certificate authorities in PEM: clients must present a certificate of theirs (mTLS)",
        unit="file",
        reason="none, clients need no certificate",
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "the least level that is logged", reason="one line for each call and each event"
    )
    log_format: Literal["auto", "json", "console"] = setting(
        "auto",
        "how a line of the log is written",
        reason="console, for people, where standard error is a terminal; else json, which programs read",
    )
    if TYPE_CHECKING:
        bind: Address

    _missing: str = PrivateAttr("")

    @model_validator(mode="after")
    def _whole_tls(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("--tls-cert and --tls-key go together")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ValueError("--tls-client-ca needs --tls-cert and --tls-key")
        return self

    def refuse_open_bind(self, missing: str) -> None:
        """Raises ValueError where the service listens outside loopback without protection.

        Args:
            missing: the protection that is missing; "" for none.
        """
        host = HostPort.parse(self.bind).host
        if missing and not self.insecure and not is_loopback(host):
            raise ValueError(f"--bind {host} is outside loopback and {missing}; --insecure does it nevertheless")
        self._missing = missing

    def dangers(self, host: str) -> list[str]:
        """What is to be said aloud about listening on `host` with these settings."""
        if is_loopback(host):
            return []
        open_door = f"INSECURE: every host that reaches this port may use the service, since {self._missing}"
        plaintext = "plaintext outside loopback (no --tls-cert): every host on the way can read keys, tokens and texts"
        return [open_door] * bool(self._missing) + [plaintext] * (self.tls_cert is None)


class RpcServerSettings(ListenerSettings):
    """Base of the settings of a service that listens for gRPC: what its server puts up with."""

    GROUPS: ClassVar[Mapping[str, str]] = {
        "metrics": "metrics_bind",
        "limits of the server": (
            "max_message_bytes max_metadata_bytes max_concurrent_streams "
            "keepalive_seconds keepalive_timeout_seconds max_connection_idle_seconds max_connection_age_seconds"
        ),
    }
    metrics_bind: AddressOrNone = setting(
        "127.0.0.1:0",
        "where GET /metrics is served for Prometheus, over plain HTTP and to all that reach it; none serves it nowhere",
        unit="HOST:PORT",
        reason="a free port of this host, which the log names: several services may run here",
    )
    max_message_bytes: int = setting(
        16 << 20,
        "the largest request",
        unit="bytes",
        reason="three times the longest append that can be allowed",
        ge=1 << 16,
        le=(1 << 31) - 1,
    )
    max_metadata_bytes: int = setting(
        16384,
        "the largest metadata of a call",
        unit="bytes",
        reason="gRPC's own; a key takes under 100",
        ge=4096,
        le=1 << 20,
    )
    max_concurrent_streams: int = setting(
        1024,
        "calls that run at once on one connection; a client keeps more of them back",
        unit="calls",
        reason="a router carries all sessions of a worker on one connection",
        ge=1,
    )
    keepalive_seconds: float = setting(
        30.0,
        "after so long without a word the other side of a connection is asked whether it is there",
        unit="seconds",
        reason="a half-open connection is noticed within a minute, idle ones cost next to nothing",
        ge=1,
    )
    keepalive_timeout_seconds: float = setting(
        10.0, "how long it may take to answer that", unit="seconds", reason="far above any round trip", gt=0
    )
    max_connection_idle_seconds: float = setting(
        900.0,
        "a connection without calls is closed after so long; clients open it again when they need it",
        unit="seconds",
        reason="longer than the pauses of a conversation; forgotten clients do not add up",
        gt=0,
    )
    max_connection_age_seconds: float = setting(
        0.0,
        "a connection takes no new calls after about so long, and is closed when those that run have ended; clients "
        "open another, which a balancer can lead to a replica that is new. 0 is for ever",
        unit="seconds",
        reason="few stand behind a balancer; there five minutes are usual",
        ge=0,
    )
