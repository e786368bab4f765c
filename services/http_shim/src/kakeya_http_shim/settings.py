"""What `kakeya http` can be told."""

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from kakeya_http_shim.limit_settings import HttpLimitSettings
from kakeya_http_shim.setting_values import Origins, Pairs, ToolParsers, by_name
from kakeya_http_shim.tools.families import SYNTAXES
from kakeya_shared.settings.addresses import Address, HostPort, is_loopback
from kakeya_shared.settings.service import Names, ServiceSettings, setting


class HttpSettings(HttpLimitSettings):
    """HTTP shim: OpenAI's API over sessions of a runtime, which it reaches as any client does."""

    model_config = ServiceSettings.configured(command="http")

    GROUPS: ClassVar[Mapping[str, str]] = {
        "the router": "router router_ca router_cert router_key router_wait_s",
        "addresses": "bind allowed_hosts cors_origins ui",
        "models and texts": (
            "tokenizer chat_template served_model_name model_alias reasoning tool_parser special_tokens_in_text "
            "special_tokens_in_completions"
        ),
        "admission": "admission max_in_flight queue_length queue_max_wait_s",
        "connections": (
            "head_timeout_seconds send_timeout_seconds "
            "keep_alive_comment_seconds connection_idle_seconds max_connections"
        ),
        "deprecation": "deprecated_since sunset successor",
        "the process": "shutdown_grace_seconds",
    }
    EXAMPLES: ClassVar[Sequence[str]] = (
        "kakeya http",
        "kakeya http --router router.example.org:50051 --router-ca ca.pem --bind 0.0.0.0:8000 --tls-cert "
        "http.pem --tls-key http.key",
        "kakeya http --tokenizer Qwen3-0.6B=~/models/Qwen3-0.6B",
    )

    router: Address = setting(
        "127.0.0.1:50051", "the router", unit="HOST:PORT", reason="where a router on this host listens by default"
    )
    router_ca: Path | None = setting(
        None,
        "certificate authorities of the router, in PEM: calls to it use TLS",
        unit="file",
        reason="none, plaintext",
    )
    router_cert: Path | None = setting(
        None, "certificate to show the router, where it asks for one, in PEM", unit="file", reason="none"
    )
    router_key: Path | None = setting(None, "private key of --router-cert, in PEM", unit="file", reason="none")
    bind: Address = setting(
        "127.0.0.1:8000",
        "where to listen",
        unit="HOST:PORT",
        reason="this host only, at the usual second port of HTTP",
    )
    allowed_hosts: Names = setting(
        (),
        "names that requests may give this server (the Host header), separated by commas. `*` is any",
        reason="on loopback its names, and elsewhere any, so that a web page cannot come in by a name of its own",
        metavar="HOST",
    )
    tokenizer: Pairs = setting(
        (),
        "MODEL=DIR_OR_HUB_ID, the tokenizer and chat template of a served model; also FILE.gguf or ollama:NAME[:TAG]. "
        "Once for each, or separated by commas",
        reason="that of the installed model of the same name",
        metavar="[MODEL=]DIR",
    )
    chat_template: Pairs = setting(
        (),
        "MODEL=FILE, a chat template (Jinja) that takes the place of that of the model's tokenizer. Once for each, or "
        "separated by commas",
        reason="the tokenizer's own",
        metavar="MODEL=FILE",
    )
    served_model_name: Pairs = setting(
        (),
        "ALIAS=MODEL, another name for a served model; once for each, or separated by commas",
        reason="the runtime's own names",
        metavar="NAME",
    )
    model_alias: Pairs = setting(
        (),
        "PATTERN=MODEL, a served model for all names like `claude-*` that are none of a served one; once for each, or "
        "separated by commas. The first that fits counts",
        reason="a name that is not served is refused",
        metavar="PATTERN",
    )
    reasoning: Literal["auto", "off"] = setting(
        "auto",
        "whether what a model thinks (<think>...</think>) is split off as reasoning_content",
        reason="where the chat template knows of it",
    )
    tool_parser: ToolParsers = setting(
        (),
        f"MODEL=FAMILY, how a served model writes calls of tools ({', '.join(SYNTAXES)}); once for each, or separated "
        "by commas",
        reason="the one that its chat template shows",
        metavar="MODEL=FAMILY",
    )
    special_tokens_in_text: bool = setting(
        False,
        "read what spells a control token of the model, such as <|im_end|>, as one also in the texts of messages",
        reason="what a person or a tool says is text, and cannot pose as another's turn",
    )
    special_tokens_in_completions: bool = setting(
        True,
        "read what spells a control token as one in the prompts of /v1/completions",
        reason="they are whole prompts, with the template written by the client",
    )
    admission: Literal["queue", "reject"] = setting(
        "queue",
        "what happens to a request beyond --max-in-flight: it waits, or is refused",
        reason="short bursts go unnoticed",
    )
    max_in_flight: int = setting(
        256, "requests that are worked on at once", unit="requests", reason="the router's queue orders them", ge=1
    )
    queue_length: int = setting(
        1024, "requests that may wait for that", unit="requests", reason="some KB each, and their bodies", ge=1
    )
    queue_max_wait_s: float = setting(
        30.0,
        "how long a request waits for that. 0 is for ever",
        unit="seconds",
        reason="as long as a person waits",
        ge=0,
    )
    router_wait_s: float = setting(
        60.0,
        "how long the opening of a session may take, the router's own queue included. 0 is for ever",
        unit="seconds",
        reason="twice the router's queue",
        ge=0,
    )
    head_timeout_seconds: float = setting(
        30.0,
        "how long a request's head may take, and its body from piece to piece",
        unit="seconds",
        reason="far above any honest client's",
        gt=0,
    )
    send_timeout_seconds: float = setting(
        60.0,
        "a client that reads nothing for so long is cut off",
        unit="seconds",
        reason="as the runtime does with its own",
        gt=0,
    )
    keep_alive_comment_seconds: float = setting(
        10.0,
        "a stream that is silent for so long says a comment",
        unit="seconds",
        reason="below the idle time-outs of the usual proxies",
        gt=0,
    )
    connection_idle_seconds: float = setting(
        75.0,
        "how long a connection is kept open between two requests",
        unit="seconds",
        reason="longer than the usual load balancers keep theirs",
        gt=0,
    )
    max_connections: int = setting(4096, "connections at once", unit="connections", reason="some 20 KB each", ge=1)
    cors_origins: Origins = setting(
        (),
        "origins whose web pages may use this API, separated by commas. `*` is all",
        reason="none, no page of another origin may",
        metavar="ORIGIN",
    )
    ui: Literal["auto", "on", "off"] = setting(
        "auto",
        "whether the live page is served at /ui",
        reason="on loopback. Elsewhere it is one more thing that a stranger can ask for",
    )
    deprecated_since: date | None = setting(
        None,
        "since when this HTTP API is deprecated, said in every answer (RFC 9745)",
        unit="YYYY-MM-DD",
        reason="it is not",
    )
    sunset: date | None = setting(
        None, "when it will be gone, said in every answer (RFC 8594)", unit="YYYY-MM-DD", reason="not decided"
    )
    successor: str = setting(
        "", "what to use then, said in every answer (Link, rel=successor-version)", unit="URL", reason="none"
    )
    shutdown_grace_seconds: float = setting(
        10.0,
        "how long running requests may go on after SIGTERM",
        unit="seconds",
        reason="most answers end within it, and supervisors wait for 10 s or more",
        ge=0,
    )

    @property
    def serves_ui(self) -> bool:
        """Whether the live page is there."""
        return self.ui == "on" or (self.ui == "auto" and is_loopback(HostPort.parse(self.bind).host))

    @property
    def tokenizers(self) -> dict[str, str]:
        """Of a model, by its name: a directory, a GGUF file, an installed model or a hub id."""
        return by_name(self.tokenizer)

    @property
    def chat_templates(self) -> dict[str, Path]:
        """Files with chat templates that take the place of tokenizers' own, by the name of the model."""
        return {model: Path(file) for model, file in by_name(self.chat_template).items()}

    @property
    def aliases(self) -> dict[str, str]:
        """Models, by another name that they are served under."""
        return by_name(self.served_model_name)

    @property
    def tool_families(self) -> dict[str, str]:
        """In whose syntax models write calls of tools, by their names, where that was said."""
        return by_name(self.tool_parser)

    @property
    def alias_patterns(self) -> dict[str, str]:
        """Models, by patterns of other names that they answer to."""
        return by_name(self.model_alias)

    @property
    def hosts(self) -> frozenset[str]:
        """Host names that requests may be for; empty: any."""
        named = frozenset(name.lower() for name in self.allowed_hosts)
        if "*" in named:
            return frozenset()
        own = HostPort.parse(self.bind).host
        if not named and is_loopback(own):
            return frozenset({"localhost", "127.0.0.1", "::1", own})
        return named

    @model_validator(mode="after")
    def _sunset_follows_deprecation(self) -> Self:
        if self.deprecated_since is None and (self.sunset is not None or self.successor):
            raise ValueError("--sunset and --successor need --deprecated-since")
        if self.sunset is not None and self.deprecated_since is not None and self.sunset < self.deprecated_since:
            raise ValueError(f"--sunset {self.sunset} is before --deprecated-since {self.deprecated_since} (RFC 9745)")
        return self

    @model_validator(mode="after")
    def _largest_body_fits(self) -> Self:
        if self.max_held_bytes < self.max_body_bytes:
            raise ValueError("--max-held-bytes must be at least --max-body-bytes")
        return self

    @model_validator(mode="after")
    def _successor_is_a_link(self) -> Self:
        if any(not "!" <= letter <= "~" or letter in '<>"' for letter in self.successor):
            raise ValueError("--successor must be a URL: visible ASCII without blanks, quotes and angle brackets")
        return self

    @model_validator(mode="after")
    def _whole_router_tls(self) -> Self:
        if (self.router_cert is None) != (self.router_key is None):
            raise ValueError("--router-cert and --router-key go together")
        if self.router_cert is not None and self.router_ca is None:
            raise ValueError("--router-cert needs --router-ca")
        return self

    @model_validator(mode="after")
    def _let_nobody_in_unnoticed(self) -> Self:
        asks_itself = self.tls_client_ca is not None
        self.refuse_open_bind("" if asks_itself else "it asks for no keys itself (its router may)")
        return self
