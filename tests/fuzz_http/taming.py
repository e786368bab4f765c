"""What is done to a drawn body before it is sent, so that the time goes into the shim and not into the model."""

from enum import Enum
from typing import Any

from tests.fuzz_http.stack import MAX_CHOICES
from tests.integration.open_http import MODEL

MAX_TOKENS = 4
_LENGTHS = ("max_tokens", "max_completion_tokens")


class Manner(Enum):
    """How a valid body is sent."""

    TAME = "its token ids are the model's"
    STREAMED = "so, and it asks for a stream, which few are drawn to do"
    WILD = "as it was drawn"


def tamed(body: dict[str, Any], manner: Manner, vocab_size: int) -> dict[str, Any]:
    """A valid body as it is sent."""
    tame = bounded(body)
    if manner is Manner.STREAMED:
        tame["stream"] = True
    return tame if manner is Manner.WILD else _of_the_model(tame, vocab_size)


def bounded(body: dict[str, Any]) -> dict[str, Any]:
    """The same with short answers, and few: numbers that are allowed become smaller ones that are allowed too."""
    tame = dict(body)
    for name in _LENGTHS:
        if _is_integer(body.get(name)) and MAX_TOKENS < body[name] < 1 << 32:
            tame[name] = MAX_TOKENS
    if _is_integer(body.get("n")) and 2 < body["n"] <= MAX_CHOICES:
        tame["n"] = 2
        if body.get("best_of") == body["n"]:
            tame["best_of"] = 2
    return tame


def _of_the_model(body: dict[str, Any], vocab_size: int) -> dict[str, Any]:
    """A valid body that names the model and tokens of it, which the document cannot demand."""
    tame = {**body, "model": MODEL}
    if body.get("logit_bias"):
        tame["logit_bias"] = {str(int(name) % vocab_size): bias for name, bias in body["logit_bias"].items()}
    if "prompt" in body:
        tame["prompt"] = _known(body["prompt"], vocab_size)
    return tame


def _known(prompt: Any, vocab_size: int) -> Any:
    if isinstance(prompt, list):
        return [_known(part, vocab_size) for part in prompt]
    return prompt if isinstance(prompt, str) else prompt % vocab_size


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
