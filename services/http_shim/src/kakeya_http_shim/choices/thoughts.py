"""What chat templates are told of a model's thoughts, and how long these may be."""

from typing import Any, Final

from kakeya_http_shim.models.served_models import TextModel
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.requests.generation_fields import GenerationFields

_SWITCH: Final = "enable_thinking"
_EFFORT: Final = "reasoning_effort"
"""What chat templates are told of it by."""


def can_be_asked_for(model: TextModel) -> bool:
    """Whether a model thinks, or its chat template can be told to let it."""
    return model.tokenizer.thinks or _knows(model, _SWITCH) or _knows(model, _EFFORT)


def asked_for(body: ChatRequest, model: TextModel) -> ChatRequest:
    """A request with what its chat template is told of thoughts.

    Only what the template asks for, so the chat is the same one that another API, or no such field, would make of the
    same messages. What its `chat_template_kwargs` say counts before all else.
    """
    wanted: dict[str, Any] = {}
    if body.reasoning_effort is not None:
        wanted = {_EFFORT: body.reasoning_effort, _SWITCH: body.reasoning_effort != "none"}
    if body.enable_thinking is not None:
        wanted[_SWITCH] = body.enable_thinking
    known = {name: value for name, value in wanted.items() if _knows(model, name)}
    if not known:
        return body
    return body.model_copy(update={"chat_template_kwargs": known | (body.chat_template_kwargs or {})})


def _knows(model: TextModel, variable: str) -> bool:
    return any(variable in template for template in model.tokenizer.templates)


def bound(fields: GenerationFields, model: TextModel) -> int | None:
    """Tokens after which a thought ends; a wish is none where the marks of the model's thoughts are no tokens."""
    demanded = fields.kakeya.max_reasoning_tokens if fields.kakeya else None
    if demanded is not None or fields.wished_bound is None or model.tokenizer.thought_marks is None:
        return demanded
    return fields.wished_bound
