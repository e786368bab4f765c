"""What `kakeya http` can be told of how much a request may ask for."""

from collections.abc import Mapping
from typing import ClassVar

from kakeya_http_shim.session_settings import HttpSessionSettings
from kakeya_shared.settings.service import LONGEST_APPEND_TOKENS, setting


class HttpLimitSettings(HttpSessionSettings):
    """Base of the settings: those of the limits of requests, beside those of sessions."""

    GROUPS: ClassVar[Mapping[str, str]] = {
        "limits of requests": (
            "default_max_tokens max_answer_tokens max_choices max_prompt_tokens max_append_tokens max_body_bytes "
            "max_held_bytes"
        ),
    }

    default_max_tokens: int = setting(
        4096,
        "the longest answer where a request names none",
        unit="tokens",
        reason="longer than most answers; a session has no end of its own",
        ge=1,
    )
    max_answer_tokens: int = setting(
        65536,
        "the longest answer of a chat or message; where a request allows a longer one, it ends there",
        unit="tokens",
        reason="the router's --max-generate-tokens; agents allow what other models have",
        ge=1,
    )
    max_choices: int = setting(8, "the largest n", unit="choices", reason="each is a session of its own", ge=1, le=128)
    max_prompt_tokens: int = setting(
        131_072,
        "the longest prompt, of each that a request brings; what a session is to prefill before it answers",
        unit="tokens",
        reason="a book of 400 pages, which keeps a lane busy for some seconds to some minutes",
        ge=1,
    )
    max_append_tokens: int = setting(
        65536,
        "longer prompts are appended in parts of this length",
        unit="tokens",
        reason="the router's --max-append-tokens",
        ge=1,
        le=LONGEST_APPEND_TOKENS,
    )
    max_body_bytes: int = setting(
        8 << 20, "the largest request", unit="bytes", reason="a book; the longest append is about as long", ge=1024
    )
    max_held_bytes: int = setting(
        512 << 20,
        "of the bodies of all requests that are under way or wait; one more is refused",
        unit="bytes",
        reason="1,280 requests of 400 KB each, or 64 of the largest",
        ge=1024,
    )
