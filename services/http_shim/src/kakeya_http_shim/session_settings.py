"""What `kakeya http` can be told of the sessions that it opens."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from kakeya_shared.settings.service import ListenerSettings, setting


class HttpSessionSettings(ListenerSettings):
    """Base of the settings: those of sessions."""

    GROUPS: ClassVar[Mapping[str, str]] = {
        "sessions": (
            "live_sessions on_overflow session_park_after_seconds session_close_after_seconds shared_head_tokens "
            "session_ttl_seconds stored_responses response_ttl_seconds response_linger_seconds signing_key_file"
        ),
    }

    live_sessions: Literal["on", "off"] = setting(
        "on",
        "whether a chat goes on in the session that has what it sends again, and prefills its new tokens only. Off, "
        "each request has a session that ends with it",
        reason="a turn costs what its new tokens cost",
    )
    session_park_after_seconds: int = setting(
        1800,
        "idle time after which the session of a chat gives its lane to others until its next turn",
        unit="seconds",
        reason="as long as a break; the router parks it earlier where others need its lane",
        ge=1,
    )
    session_close_after_seconds: int = setting(
        86_400,
        "idle time after which the session of a chat is closed; its next turn is prefilled as a whole",
        unit="seconds",
        reason="a conversation is gone on with the next day; parked it takes no lane",
        ge=1,
    )
    shared_head_tokens: int = setting(
        256,
        "system messages of so many tokens are prefilled once for all conversations that begin with them",
        unit="tokens",
        reason="a shorter prefill takes no longer than the calls that share it",
        ge=1,
    )
    on_overflow: Literal["evict", "refuse"] = setting(
        "evict",
        "what happens when a conversation outgrows its session. The oldest tokens behind the system prompt are "
        "forgotten, or the request is refused; a request may say otherwise",
        reason="the answer says what was forgotten",
    )
    session_ttl_seconds: int = setting(
        60,
        "after so long without a sign of this server the session of a request that is no live one expires",
        unit="seconds",
        reason="its lane is free again soon if this process is killed",
        ge=1,
    )
    stored_responses: Literal["on", "off"] = setting(
        "on",
        "whether a response (`/v1/responses`) is stored with the runtime unless its request says otherwise. Off, none "
        "is, and each says so",
        reason="so OpenAI's API does it",
    )
    response_ttl_seconds: int = setting(
        86_400,
        "time for which a response is stored",
        unit="seconds",
        reason="a conversation is gone on with the next day",
        ge=1,
        le=30 * 86_400,
    )
    response_linger_seconds: float = setting(
        30.0,
        "time for which the stream of a response that is stored runs on although nobody reads it. With 0 it ends with "
        "its reader, as all others do",
        unit="seconds",
        reason="a client that lost its connection comes again within that, and a worker works for nobody no longer",
        ge=0.0,
        le=3600.0,
    )
    signing_key_file: Path | None = setting(
        None,
        "what seals items that only this server can read (compactions, encrypted thoughts): 32 bytes or more, the same "
        "for all servers of a runtime",
        unit="file",
        reason="each server makes a key for each of its keys' tenants, which the runtime keeps for 30 days",
    )
