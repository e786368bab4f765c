"""What the runtime is told of a model's thoughts, where that matters to the answer."""

from typing import Any

from kakeya import Reasoning
from kakeya_http_shim.models.model_tokenizer import Prompt
from kakeya_http_shim.models.served_models import TextModel
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.requests.generation_fields import GenerationFields


def told(fields: GenerationFields, model: TextModel, prompt: Prompt) -> dict[str, Any]:
    """What `AsyncSession.turn` takes of it: a grammar begins behind a thought, and a thought may have a bound.

    Raises:
        ApiError: the model's thoughts cannot be told apart by tokens.
    """
    bound = fields.kakeya.max_reasoning_tokens if fields.kakeya else None
    thinking = model.tokenizer.thinking(prompt)
    if thinking == "not" or (bound is None and fields.held_to is None):
        return {}
    marks = model.tokenizer.thought_marks
    if marks is None:
        param = "kakeya.max_reasoning_tokens" if fields.held_to is None else fields.form
        why = f"the marks of thoughts are no tokens of their own in the tokenizer of {model.name!r}"
        raise ApiError(400, f"{param}: not supported: {why}", param=param, code="unsupported_parameter")
    begin, end = marks
    return {"reasoning": Reasoning([end], [begin] if thinking == "perhaps" else (), bound or 0)}
