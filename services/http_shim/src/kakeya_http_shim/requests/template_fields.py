"""The fields that say how a conversation is rendered."""

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, JsonValue, StringConstraints

from kakeya.text.chat_tokenizer import End
from kakeya_http_shim.requests.fields import NotBoth, Rule, RuledModel, honoured, refusal
from kakeya_http_shim.requests.tools import DeferredTool, Tools, for_template

_MAX_VARIABLES = 64
_RESERVED = ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template")
"""Names that mean something by themselves where templates are rendered."""


def _no_reserved(variables: dict[str, JsonValue]) -> dict[str, JsonValue]:
    for name in _RESERVED:
        if name in variables:
            raise refusal("a name of its own where templates are rendered", name)
    return variables


Variables = Annotated[
    dict[Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$")], JsonValue],
    Field(
        max_length=_MAX_VARIABLES,
        json_schema_extra={"additionalProperties": False, "propertyNames": {"not": {"enum": list(_RESERVED)}}},
    ),
    AfterValidator(_no_reserved),
]


class TemplateFields(RuledModel):
    """Of all that is made from messages."""

    add_generation_prompt: bool | None = honoured(
        None,
        "true by default: the prompt ends with the beginning of an answer; false: with the end of the last message "
        "(transformers')",
    )
    continue_final_message: bool | None = honoured(
        None,
        "the last message is left open, and the answer goes on with its text; not together with "
        "add_generation_prompt (transformers')",
    )
    chat_template_kwargs: Variables | None = honoured(
        None, "what the chat template is told beside the messages, such as `enable_thinking` (vLLM's)"
    )

    tools: Tools | None = honoured(
        None, "functions that the model may call, where its chat template writes them; see docs/tools.md"
    )

    rules: ClassVar[Sequence[Rule]] = (NotBoth("continue_final_message", "add_generation_prompt"),)

    @cached_property
    def offered(self) -> list[dict[str, Any]] | None:
        """The tools that may be called, as chat templates take them; None where there are none."""
        return [for_template(tool) for tool in self.tools or ()] or None

    @cached_property
    def told(self) -> list[dict[str, Any]] | None:
        """Those of them that the prompt begins with."""
        return [for_template(tool) for tool in self.tools or () if not isinstance(tool, DeferredTool)] or None

    @property
    def end(self) -> End:
        """Where the prompt ends."""
        if self.continue_final_message:
            return "text"
        return "message" if self.add_generation_prompt is False else "answer"
