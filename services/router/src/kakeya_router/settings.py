"""What `kakeya router` can be told."""

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, model_validator

from kakeya_shared.addresses import Address
from kakeya_shared.settings import ServiceSettings, setting


def _redis_url(url: str) -> str:
    if urlsplit(url).scheme not in ("redis", "rediss", "unix"):
        raise ValueError("not a redis://, rediss:// or unix:// URL")
    return url


class RouterSettings(ServiceSettings):
    """Session router: serves sessions, keeps their state in Redis, places them on workers."""

    model_config = ServiceSettings.configured(command="router")

    redis: Annotated[str, AfterValidator(_redis_url)] = setting(
        "redis://127.0.0.1:6379/0", "Redis that holds all state", unit="URL", reason="a Redis on this host"
    )
    bind: Address = setting(
        "127.0.0.1:50051",
        "where to listen",
        unit="HOST:PORT",
        reason="this host only, for there is no authentication here; 50051 is gRPC's usual port",
    )
    advertise: Address | None = setting(
        None,
        "where workers reach this router",
        unit="HOST:PORT",
        reason="what it listens on, with the host's name where that is every interface",
    )
    session_ttl_seconds: int = setting(
        1800,
        "how long a session may be idle, unless it asks for another time",
        unit="seconds",
        reason="a person's pause in a conversation",
        ge=1,
    )
    reap_interval_seconds: float = setting(
        1.0,
        "between two passes of the reaper",
        unit="seconds",
        reason="freed lanes are missed within seconds, a pass costs a few commands",
        gt=0,
    )
    operation_lease_seconds: float = setting(
        5.0,
        "how long a vanished router's operation keeps its session busy",
        unit="seconds",
        reason="longer than any pause of a healthy router, short for a person who waits",
        gt=0,
    )
    heartbeat_interval_seconds: float = setting(
        1.0,
        "how often workers report",
        unit="seconds",
        reason="five chances within the default lease, a few hundred bytes each",
        gt=0,
    )
    worker_lease_seconds: float = setting(
        5.0,
        "without a heartbeat for so long a worker is lost",
        unit="seconds",
        reason="five missed heartbeats are no accident",
        gt=0,
    )
    lost_retention_seconds: float = setting(
        30.0,
        "how long the sessions of a lost worker answer WORKER_LOST before they are unknown",
        unit="seconds",
        reason="every client that is at work asks again within that time",
        ge=0,
    )
    max_append_tokens: int = setting(
        65536,
        "the longest append",
        unit="tokens",
        reason="a long document in one call, 330 KB on the wire; what is longer is sent in parts",
        ge=1,
        le=1_000_000,  # 5 MB at most, which every message limit on the way holds
    )
    placement: str = setting(
        "least-loaded",
        "plugin that chooses the worker of a new session",
        reason="spreads sessions, so that each has the most of its worker",
    )
    default_model: str = setting(
        "", "model of a session that names none", reason="the only one that is served, if it is the only one"
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "the least level that is logged", reason="one line for each session's begin and end"
    )
    shutdown_grace_seconds: float = setting(
        10.0,
        "how long running calls may go on after SIGTERM",
        unit="seconds",
        reason="most turns end within it, and supervisors wait for 10 s or more",
        ge=0,
    )

    @model_validator(mode="after")
    def _lease_outlasts_heartbeats(self) -> Self:
        if self.worker_lease_seconds <= self.heartbeat_interval_seconds:
            raise ValueError("worker_lease_seconds must be longer than heartbeat_interval_seconds")
        return self
