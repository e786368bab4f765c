"""What a turn in a new session may be told by name."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, TypedDict

from kakeya._transport._requests import TokenIds
from kakeya.grammar import Grammar, Reasoning
from kakeya.results import OverflowPolicy

if TYPE_CHECKING:
    from kakeya._async.session import AsyncSession


class SamplingOptions(TypedDict, total=False):
    """How tokens are chosen, as `AsyncSession.generate` and every turn take it; None changes nothing.

    Attributes:
        grammar: what the answer has to be.
        reasoning: how the model thinks before it: a grammar begins behind that, and it can have a bound.
        temperature: 0 is greedy, too.
        top_p: keep the most probable tokens up to this mass.
        top_k: keep this many tokens; 0 keeps all.
        min_p: keep the tokens that are at least this many times as likely as the likeliest; 0 keeps all.
        presence_penalty: within -2 and 2; taken off the logit of a token that this generation has produced.
        frequency_penalty: within -2 and 2; taken off once for each time that it has.
        logit_bias: added to logits by token id; at most 1,024 entries.
        seed: left out, the runtime draws one, which the result reports.
        stop_token_sequences: stop once the tokens of this generation end with one of these, which is yielded as an EOS
            token is; at most 16 of 1 to 64 tokens.
        logprobs: fill `details` with each token's log-probability and those of this many likeliest ids; at most 20, 0
            for the token's alone.
        repetition_penalty: above 0 and at most 2; divides the logit of a token that this generation has produced where
            it is positive, multiplies it elsewhere.
        min_tokens: until so many are produced no EOS token is chosen, unless a grammar leaves nothing else, and stop
            sequences are not looked for; at most max_tokens.
        ignore_eos: no EOS token is ever chosen; not beside a grammar.
    """

    grammar: Grammar | None
    reasoning: Reasoning | None
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
    speculation: str | None
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
