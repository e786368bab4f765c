"""What an answer is held to, and what the runtime is told of the model's thoughts, where that matters to it."""

from dataclasses import dataclass
from typing import Any

from kakeya import Grammar, Reasoning
from kakeya_http_shim.models.prompt import Prompt
from kakeya_http_shim.models.served_models import TextModel
from kakeya_http_shim.problems import ApiError


@dataclass(frozen=True, slots=True)
class Held:
    """What one answer is held to.

    Attributes:
        grammar: None: nothing.
        form: the field of the request that says it.
        has_text: the grammar takes any text, thoughts as well, and holds no more than parts of it.
        ends_thoughts: a part that it holds ends thoughts, too.
    """

    grammar: Grammar | None
    form: str
    has_text: bool = False
    ends_thoughts: bool = False

    def told(self, bound: int | None, model: TextModel, prompt: Prompt) -> dict[str, Any]:
        """What `AsyncSession.turn` takes of it: a grammar begins behind a thought, and a thought may have a bound.

        Args:
            bound: tokens of a thought; None: it has none.

        Raises:
            ApiError: the model's thoughts cannot be told apart by tokens.
        """
        grammar = {} if self.grammar is None else {"grammar": self.grammar}
        thinking = model.tokenizer.thinking(prompt)
        if thinking == "not" or (bound is None and self._may_begin_within_thoughts(model)):
            return grammar
        marks = model.tokenizer.thought_marks
        if marks is None:
            param = "kakeya.max_reasoning_tokens" if self._may_begin_within_thoughts(model) else self.form
            why = f"the marks of thoughts are no tokens of their own in the tokenizer of {model.name!r}"
            raise ApiError(400, f"{param}: not supported: {why}", param=param, code="unsupported_parameter")
        begin, end = marks
        return {**grammar, "reasoning": Reasoning([end], [begin] if thinking == "perhaps" else (), bound or 0)}

    def _may_begin_within_thoughts(self, model: TextModel) -> bool:
        if self.grammar is None:
            return True
        return self.has_text and (self.ends_thoughts or model.tokenizer.thought_marks is None)
