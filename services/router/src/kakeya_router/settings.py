"""What `kakeya router` can be told."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, SecretStr, model_validator

from kakeya_router.kept_settings import limit, seconds
from kakeya_router.tunnel_settings import TunnelSettings
from kakeya_shared.settings.addresses import Address
from kakeya_shared.settings.redis_url import TIMEOUT_SECONDS, CheckedRedisUrl
from kakeya_shared.settings.service import (
    LONGEST_APPEND_TOKENS,
    ServiceSettings,
    append_bytes,
    setting,
)

_MIN_SECRET_LETTERS = 24  # what is shorter may be a word that can be guessed


def _secret(given: SecretStr) -> SecretStr:
    """Without what surrounds it in a file, such as the end of its line; as metadata can carry it."""
    text = given.get_secret_value().strip()
    if len(text) < _MIN_SECRET_LETTERS or not all("!" <= letter <= "~" for letter in text):
        raise ValueError(f"must have at least {_MIN_SECRET_LETTERS} letters, all of them visible ASCII")
    return SecretStr(text)


_Secret = Annotated[SecretStr, AfterValidator(_secret)]


class RouterSettings(TunnelSettings):
    """Session router: serves sessions, keeps their state in Redis, places them on workers."""

    model_config = ServiceSettings.configured(command="router")
    GROUPS: ClassVar[Mapping[str, str]] = {
        "Redis": "redis redis_timeout_seconds redis_replicas redis_directory",
        "addresses and keys": "bind advertise auth admin_key join_token",
        "admission": "admission queue_seconds queue_length close_idle_after_seconds placement default_model",
        "quotas": "tenant_max_sessions tenant_max_bytes tenant_tokens_per_minute key_max_sessions",
        "sessions": "reap_interval_seconds",
        "workers": "heartbeat_interval_seconds worker_lease_seconds worker_silence_seconds worker_ca",
        "recovery": "operation_lease_seconds journal_tokens recovery_seconds lost_retention_seconds",
        "limits of requests": "max_append_tokens max_generate_tokens max_history_tokens max_label_bytes",
        "limits of calls": "max_calls max_calls_per_tenant",
        "the process": "shutdown_grace_seconds",
    }
    EXAMPLES: ClassVar[Sequence[str]] = (
        "kakeya router --bind 0.0.0.0:50051 --tls-cert router.pem --tls-key router.key --auth keys",
        "kakeya router --redis rediss://redis.example.org --admission evict-idle",
    )
    redis: CheckedRedisUrl = setting(
        "redis://127.0.0.1:6379/0",
        "the Redis that holds all state, as redis://[[USER]:PASSWORD@]HOST[:PORT][/DB], rediss:// for TLS, or "
        "unix://[[USER]:PASSWORD@]/PATH. Behind Sentinel it is "
        "redis+sentinel://HOST[:PORT][,HOST[:PORT]...]/NAME[/DB], and a Cluster is "
        "redis+cluster://HOST[:PORT][,HOST[:PORT]...]. Put it into the variable where it has a password, since flags "
        "are seen by everybody on the host",
        unit="URL",
        reason="a Redis on this host",
    )
    redis_timeout_seconds: float = seconds(
        TIMEOUT_SECONDS,
        "how long Redis may take to answer, or to take a connection; what is silent for longer is down, and calls are "
        "refused",
        reason="a busy machine whose disk syncs each write, or that begins a TLS connection, takes a second at times",
    )
    redis_replicas: int = setting(
        0,
        "how many replicas must have what a call has written before it is acknowledged (WAIT): a failover to one of "
        "them loses nothing of that. With fewer, calls are refused",
        unit="replicas",
        reason="none, a server alone has none; each call would wait for a replica's answer",
        ge=0,
    )
    redis_directory: Path | None = setting(
        None,
        "where Redis keeps its data, if that is on this host: calls are refused with the reason where Redis is away "
        "since that disk is full",
        unit="directory",
        reason="none, Redis is elsewhere, or its errors say enough",
    )
    bind: Address = setting(
        "127.0.0.1:50051", "where to listen", unit="HOST:PORT", reason="this host only; 50051 is gRPC's usual port"
    )
    advertise: Address | None = setting(
        None,
        "where workers reach this router",
        unit="HOST:PORT",
        reason="what it listens on, with the host's name where that is every interface",
    )
    auth: Literal["none", "keys"] = setting(
        "none", "whether callers need a key, and workers a token", reason="on loopback every user of this host may"
    )
    admin_key: _Secret | None = setting(
        None,
        "an administrator's key beside those in Redis, for the first one; put it into the variable, since flags are "
        "seen by everybody on the host",
        reason="none",
    )
    join_token: _Secret | None = setting(
        None, "a token beside those in Redis that admits any worker", reason="none", metavar="TOKEN"
    )
    worker_ca: Path | None = setting(
        None,
        "certificate authorities of the workers, in PEM: calls to workers use TLS and present --tls-cert",
        unit="file",
        reason="none, plaintext to workers",
    )
    admission: Literal["auto", "queue", "reject", "close-idle", "evict-idle"] = setting(
        "auto",
        "what happens to a new session when every lane is taken. It waits (queue), is refused (reject), or takes the "
        "lane of the session that has been idle for longest. close-idle closes that session. evict-idle parks it until "
        "its next call, if a snapshot store or the journal has its history. auto is evict-idle where the worker has a "
        "snapshot store, and queue where it has none. Disposable sessions make room in any case",
        reason="short bursts go unnoticed, who is idle makes room, and nobody loses a session",
    )
    queue_seconds: float = seconds(
        30.0,
        "how long a new session waits for a lane. 0 is for ever",
        reason="as long as a person waits, and half of the time-out of our clients",
        ge=0,
    )
    queue_length: int = setting(
        1024,
        "how many new sessions of a pool may wait at once",
        unit="calls",
        reason="each costs a few KB here; more would not get in within the time that they wait",
        ge=1,
    )
    close_idle_after_seconds: float = seconds(
        30.0,
        "with --admission auto, close-idle or evict-idle: how long a session must have been idle",
        reason="a person's pause between two turns is mostly shorter",
        ge=0,
    )
    tenant_max_sessions: int = limit(
        "most sessions of a tenant in a pool, unless it has a quota of its own",
        unit="sessions",
        reason="the lanes are the limit, and the queue shares them fairly",
    )
    tenant_max_bytes: int = limit(
        "most reserved bytes of a tenant in a pool, unless it has a quota of its own",
        unit="bytes",
        reason="as above",
    )
    tenant_tokens_per_minute: int = limit(
        "most tokens of a tenant in a pool, appended, generated and prefilled anew for forks, unless it has a quota of "
        "its own",
        unit="tokens",
        reason="workers share their time fairly among tenants",
    )
    key_max_sessions: int = limit(
        "most sessions of a key in a pool", unit="sessions", reason="its tenant's quota holds"
    )
    reap_interval_seconds: float = seconds(
        1.0,
        "between two passes of the reaper",
        reason="freed lanes are missed within seconds, a pass costs a few commands",
    )
    operation_lease_seconds: float = seconds(
        5.0,
        "how long a vanished router's operation keeps its session busy",
        reason="longer than any pause of a healthy router, short for a person who waits",
    )
    journal_tokens: int = setting(
        262_144,
        "how much of a session's history may be in the journal in Redis and in no snapshot. Beyond it a session is "
        "refused where its workers have a snapshot store, and can be lost where they have none. It holds at least one "
        "append of the largest size",
        unit="tokens",
        reason="four appends of the largest size; a MiB for the few sessions that are so long",
        ge=1,
    )
    heartbeat_interval_seconds: float = seconds(
        5.0,
        "how often workers report",
        reason="four chances within the default lease; 1,000 workers cost a router a fifth of a core",
    )
    worker_lease_seconds: float = seconds(
        20.0,
        "without a heartbeat for so long a worker is lost",
        reason="four missed heartbeats are no accident",
    )
    worker_silence_seconds: float = seconds(
        3.0,
        "a router gives up a worker that runs calls of its own and has not answered it for so long, whatever the "
        "lease; it asks each second. One that is reached through tunnels is waited for",
        reason="no healthy worker is silent for so long, and a person still waits",
    )
    lost_retention_seconds: float = seconds(
        30.0,
        "how long the sessions of a lost worker answer WORKER_LOST before they are unknown",
        reason="every client that is at work asks again within that time",
        ge=0,
    )
    recovery_seconds: float = seconds(
        2.0,
        "a session is also written when prefilling anew what came since the last time would take so long",
        reason="the pause that a client notices when a worker is lost",
    )
    max_append_tokens: int = setting(
        65536,
        "the longest append",
        unit="tokens",
        reason="a long document in one call, 330 KB on the wire; what is longer is sent in parts",
        ge=1,
        le=LONGEST_APPEND_TOKENS,
    )
    max_generate_tokens: int = setting(
        65536,
        "the largest max_tokens of a Generate",
        unit="tokens",
        reason="longer than any answer that a person reads; what needs more goes on with another call",
        ge=1,
    )
    max_history_tokens: int = limit(
        "the longest history of a session", unit="tokens", reason="memory does not grow with it"
    )
    max_label_bytes: int = setting(
        256, "the longest client_label", unit="bytes", reason="a line of an operator's list", ge=0, le=4096
    )
    max_calls: int = setting(
        4096,
        "calls that run at once, waiting ones included",
        unit="calls",
        reason="some KB each; four times the queue",
        ge=1,
    )
    max_calls_per_tenant: int = setting(
        2048,
        "calls of one tenant that run at once",
        unit="calls",
        reason="half of --max-calls: one tenant cannot use up all",
        ge=1,
    )
    placement: str = setting(
        "least-loaded",
        "plugin that chooses the worker of a new session",
        reason="spreads sessions, so that each has the most of its worker",
        metavar="NAME",
    )
    default_model: str = setting(
        "",
        "model of a session that names none",
        reason="the only one that is served, if it is the only one",
        metavar="MODEL",
    )
    shutdown_grace_seconds: float = seconds(
        10.0,
        "how long running calls may go on after SIGTERM",
        reason="most turns end within it, and supervisors wait for 10 s or more",
        ge=0,
    )

    @model_validator(mode="after")
    def _lease_outlasts_heartbeats(self) -> Self:
        if self.worker_lease_seconds <= self.heartbeat_interval_seconds:
            raise ValueError("worker_lease_seconds must be longer than heartbeat_interval_seconds")
        return self

    @model_validator(mode="after")
    def _longest_append_is_one_message(self) -> Self:
        num_bytes = append_bytes(self.max_append_tokens)
        if num_bytes > self.max_message_bytes:
            raise ValueError(
                f"--max-append-tokens {self.max_append_tokens} needs --max-message-bytes of at least {num_bytes}"
            )
        return self

    @model_validator(mode="after")
    def _without_keys(self) -> Self:
        if self.auth == "keys":
            return self
        flags = ("tenant_max_sessions", "tenant_max_bytes", "tenant_tokens_per_minute", "key_max_sessions")
        ignored = [f"--{flag.replace('_', '-')}" for flag in flags if getattr(self, flag)]
        if ignored:
            raise ValueError(f"{', '.join(ignored)}: without --auth keys nobody has a tenant or a key")
        # An operator who sets one believes the door is shut.
        if self.admin_key is not None or self.join_token is not None:
            raise ValueError("--admin-key and --join-token need --auth keys: without it nobody is asked for them")
        self.refuse_open_bind("keys are not asked for (--auth keys)")
        return self
