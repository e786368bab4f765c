"""What is done to a drawn body before it is sent, so that the time goes into the shim and not into the model."""

from enum import Enum
from typing import Any

from tests.fuzz_http.stack import MAX_CHOICES
from tests.integration.open_http import MODEL

MAX_TOKENS = 4
_LENGTHS = ("max_tokens", "max_completion_tokens")
_MAX_WHOLE = 1 << 53


class Manner(Enum):
    """How a valid body is sent."""

    TAME = "its fields agree with each other and with the model"
    STREAMED = "so, and it asks for a stream, which few are drawn to do"
    WILD = "as it was drawn"


def tamed(body: dict[str, Any], manner: Manner, vocab_size: int) -> dict[str, Any]:
    """A valid body as it is sent."""
    tame = bounded(_as_written(body))
    if manner is Manner.STREAMED:
        tame["stream"] = True
    return tame if manner is Manner.WILD else _agreeing(tame, vocab_size)


def bounded(body: dict[str, Any]) -> dict[str, Any]:
    """The same with short answers, and few: numbers that are allowed become smaller ones that are allowed too."""
    tame = dict(body)
    for name in _LENGTHS:
        if _is_integer(body.get(name)) and MAX_TOKENS < body[name] < 1 << 32:
            tame[name] = MAX_TOKENS
    if _is_integer(body.get("n")) and 2 < body["n"] <= MAX_CHOICES:
        tame["n"] = 2
    return tame


def _as_written(value: Any) -> Any:
    """The same value as clients write it: JSON Schema takes 1.0 for an integer, which nobody means by it."""
    match value:
        case dict():
            return {name: _as_written(part) for name, part in value.items()}
        case list():
            return [_as_written(part) for part in value]
        case float() if value.is_integer() and abs(value) <= _MAX_WHOLE:
            return int(value)
    return value


def _agreeing(body: dict[str, Any], vocab_size: int) -> dict[str, Any]:
    """A valid body whose fields agree with each other and with the model, which the document cannot demand of it."""
    tame = {**body, "model": MODEL}
    if body.get("stream_options") is not None:
        tame["stream"] = True
    if body.get("top_logprobs") is not None:
        tame["logprobs"] = True
    if body.get("best_of") is not None:
        tame["best_of"] = body.get("n") or 1
    if body.get("max_tokens") and body.get("max_completion_tokens"):
        tame["max_tokens"] = body["max_completion_tokens"]
    if body.get("logit_bias"):
        tame["logit_bias"] = {str(int(name) % vocab_size): bias for name, bias in body["logit_bias"].items()}
    if "prompt" in body:
        tame["prompt"] = _known(body["prompt"], vocab_size)
        if isinstance(tame["prompt"], list) and not _is_integer(tame["prompt"][0]):
            tame["prompt"] = tame["prompt"][: MAX_CHOICES // (body.get("n") or 1)] or tame["prompt"][:1]
    return tame


def _known(prompt: Any, vocab_size: int) -> Any:
    if isinstance(prompt, list):
        return [_known(part, vocab_size) for part in prompt]
    if isinstance(prompt, str):
        return prompt or "Once"
    return prompt % vocab_size


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
