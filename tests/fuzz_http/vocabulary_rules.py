"""What a body must obey beyond its schema, which knows no vocabulary. A body may be refused for nothing else.

A valid body that breaks one of these is refused with 400, and `param` names the field; one that breaks none is not.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Body = Mapping[str, Any]


@dataclass(frozen=True)
class VocabularyRule:
    """Attributes:
    param: what the error names, or what that begins with.
    is_broken: told a body that its schema allows, and the number of tokens that the model knows.
    """

    says: str
    param: str
    is_broken: Callable[[Body, int], bool]


def _prompts(body: Body) -> list[Any]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and not isinstance(prompt[0], int | float):
        return prompt
    return [prompt]


def _is_unknown(token_id: object, vocab_size: int) -> bool:
    return isinstance(token_id, int | float) and token_id >= vocab_size


RULES = (
    VocabularyRule(
        "logit_bias names tokens of the model",
        "logit_bias",
        lambda body, vocab_size: any(int(name) >= vocab_size for name in body.get("logit_bias") or ()),
    ),
    VocabularyRule(
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


def broken_rules(body: object, vocab_size: int) -> list[VocabularyRule]:
    """Of a body that its schema allows."""
    if not isinstance(body, dict):
        return []
    return [rule for rule in RULES if rule.is_broken(body, vocab_size)]
