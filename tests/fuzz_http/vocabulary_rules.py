"""What a body must obey beyond its schema: OpenAPI has no words for it. A body may be refused for nothing else.

A valid body that breaks one of these is refused with 400, and `param` names the field; one that breaks none is not.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.fuzz_http.stack import MAX_CHOICES

Body = Mapping[str, Any]


@dataclass(frozen=True)
class CrossFieldRule:
    """Attributes:
    param: what the error names, or what that begins with.
    is_broken: told a body that its schema allows, and the number of tokens that the model knows.
    """

    says: str
    param: str
    is_broken: Callable[[Body, int], bool]


def _differ(body: Body) -> bool:
    given = {body.get(name) for name in ("max_tokens", "max_completion_tokens")} - {None}
    return len(given) > 1


def _prompts(body: Body) -> list[Any]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and not isinstance(prompt[0], int):
        return prompt
    return [prompt]


def _is_unknown(token_id: object, vocab_size: int) -> bool:
    return isinstance(token_id, int) and token_id >= vocab_size


RULES = (
    CrossFieldRule(
        "stream_options only with stream",
        "stream_options",
        lambda body, _: body.get("stream_options") is not None and not body.get("stream"),
    ),
    CrossFieldRule(
        "top_logprobs only with logprobs",
        "top_logprobs",
        lambda body, _: bool(body.get("top_logprobs")) and not body.get("logprobs"),
    ),
    CrossFieldRule("max_tokens and max_completion_tokens are equal", "max_tokens", lambda body, _: _differ(body)),
    CrossFieldRule(
        "best_of equals n",
        "best_of",
        lambda body, _: body.get("best_of") not in (None, body.get("n") or 1),
    ),
    CrossFieldRule(
        "n answers for each prompt are at most --max-choices",
        "n",
        lambda body, _: (body.get("n") or 1) * len(_prompts(body)) > MAX_CHOICES,
    ),
    CrossFieldRule(
        "logit_bias names tokens of the model",
        "logit_bias",
        lambda body, vocab_size: any(int(name) >= vocab_size for name in body.get("logit_bias") or ()),
    ),
    CrossFieldRule("a prompt has a token", "prompt", lambda body, _: "" in _prompts(body)),
    CrossFieldRule(
        "a prompt has tokens of the model",
        "prompt",
        lambda body, vocab_size: any(
            _is_unknown(token_id, vocab_size)
            for prompt in _prompts(body)
            if isinstance(prompt, list)
            for token_id in prompt
        ),
    ),
)


def broken_rules(body: object, vocab_size: int) -> list[CrossFieldRule]:
    """Of a body that its schema allows."""
    if not isinstance(body, dict):
        return []
    return [rule for rule in RULES if rule.is_broken(body, vocab_size)]
