"""What `kakeya router` can be told of the sessions that it keeps although nobody uses them."""

from collections.abc import Mapping
from typing import Any, ClassVar

from kakeya_shared.settings.service import RpcServerSettings, setting


def seconds(default: float, help: str, *, reason: str, **limits: Any) -> Any:
    """A time; without other limits it is not nothing."""
    return setting(default, help, unit="seconds", reason=reason, **limits or {"gt": 0})


def limit(help: str, *, unit: str, reason: str) -> Any:
    """There is none unless an operator sets one."""
    return setting(0, f"{help}. 0 is no limit", unit=unit, reason=reason, ge=0)


class KeptSettings(RpcServerSettings):
    """How long sessions are kept, and how many."""

    GROUPS: ClassVar[Mapping[str, str]] = {
        "sessions": "session_ttl_seconds parked_ttl_seconds snapshot_turns",
        "what is kept of disposable sessions": "parked_sessions snapshot_bytes max_children max_heads",
    }
    session_ttl_seconds: int = seconds(
        1800,
        "how long a session may be idle, unless it asks for another time",
        reason="a person's pause in a conversation",
        ge=1,
    )
    parked_ttl_seconds: int = seconds(
        86_400,
        "how long a session without a lane, such as one whose worker was lost, is kept for its next call",
        reason="a day: it costs no memory of a worker",
        ge=1,
    )
    snapshot_turns: int = setting(
        1,
        "after how many turns a session is written to its worker's snapshot store",
        unit="turns",
        reason="any turn can be gone back to; what is written is what the turn added",
        ge=1,
        le=4,
    )
    parked_sessions: int = setting(
        10_000,
        "how many disposable sessions of a pool are kept parked. Those go that nobody has used for longest. 0 is no "
        "limit",
        unit="sessions",
        reason="each costs some 10 KB of Redis's memory",
        ge=0,
    )
    snapshot_bytes: int | None = setting(
        None,
        "how many bytes of snapshots a pool keeps. Where it is nine tenths full, parked disposable sessions are closed "
        "that nobody has used for longest. 0 is no limit",
        unit="bytes",
        reason="a tenth of what was free on the disks of the workers' snapshot stores when they started, and no limit "
        "where one is a URL",
        ge=0,
    )
    max_children: int = setting(
        4,
        "how many disposable forks of one place a tenant keeps; of more the least recently used idle one is closed",
        unit="sessions",
        reason="an answer is rarely asked for more often, and each has a lane or a snapshot",
        ge=1,
    )
    max_heads: int = setting(
        8,
        "how many sessions that others begin with (CreateSessionRequest.head) a tenant keeps in a pool; of more the "
        "least recently used parked one is closed",
        unit="sessions",
        reason="a tenant has a handful of system prompts and lists of tools",
        ge=1,
    )
