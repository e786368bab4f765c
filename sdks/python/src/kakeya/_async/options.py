"""What a turn in a new session may be told by name."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, TypedDict

from kakeya._transport._requests import TokenIds
from kakeya.results import OverflowPolicy

if TYPE_CHECKING:
    from kakeya._async.session import AsyncSession


class SamplingOptions(TypedDict, total=False):
    """As `AsyncSession.generate` takes them."""

    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    logit_bias: Mapping[int, float] | None
    seed: int | None
    stop_token_sequences: Iterable[TokenIds] | None
    logprobs: int | None
    repetition_penalty: float | None
    min_tokens: int | None
    ignore_eos: bool | None


class SessionOptions(TypedDict, total=False):
    """As `AsyncClient.create_session` takes them."""

    eos_token_ids: TokenIds
    label: str | None
    model: str | None
    sink: int | None
    window: int | None
    pin: int | None
    on_overflow: OverflowPolicy | Literal["evict", "refuse"] | None
    fingerprint: str | None
    inexact_resume: bool
    ttl_seconds: int | None
    park_after_seconds: int | None
    disposable: bool
    head: bool
    fork_from: "AsyncSession | str | None"
    boundary: int | None
    request_id: str | None
    wait_for_capacity_seconds: float


class TurnOptions(SessionOptions, SamplingOptions, total=False):
    """As `AsyncClient.turn` takes them."""


def check_names(method: str, given: Mapping[str, object], known: type) -> None:
    """Raises TypeError as a call does that has an option too many."""
    if unknown := given.keys() - known.__annotations__.keys():
        raise TypeError(f"{method}() has no {', '.join(sorted(unknown))}")
