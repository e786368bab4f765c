"""The body of POST /v1/responses/compact, and its answer."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field, JsonValue, StringConstraints

from kakeya_http_shim.requests.fields import Rule, RuledModel, honoured, without_effect
from kakeya_http_shim.requests.generation_fields import ModelName
from kakeya_http_shim.responses_api.response_object import OutputCompaction, ResponseUsage
from kakeya_http_shim.responses_api.responses_request import Input, ReasoningOptions, ResponsesRequest
from kakeya_http_shim.responses_api.responses_tools import OfferedTools

_OF_ANSWERS = "nothing is answered"


class CompactRequest(RuledModel):
    """A conversation that is to be made small."""

    model: ModelName | None = honoured(None, "may be left out where the runtime has a default")
    input: Input | None = honoured(None, "the items of the conversation, or what is new of it")
    previous_response_id: Annotated[str, StringConstraints(max_length=128)] | None = honoured(
        None, "of a response that is stored: its items, and those of its answer, come before those of `input`"
    )
    instructions: str | None = honoured(None, "those that its requests have had; they are sent again with the next one")
    tools: OfferedTools | None = honoured(None, "those that its requests have had, since they are part of its head")
    reasoning: ReasoningOptions | None = honoured(None, "`effort`, as its requests have had it")

    parallel_tool_calls: bool | None = without_effect(_OF_ANSWERS)
    prompt_cache_key: str | None = without_effect("a conversation is found by its items")
    prompt_cache_retention: str | None = without_effect("sessions are kept as the server was told")
    service_tier: str | None = without_effect("there is one")
    text: dict[str, JsonValue] | None = without_effect(_OF_ANSWERS)

    rules: ClassVar[Sequence[Rule]] = ()
    refused: ClassVar[Mapping[str, str]] = {}

    def as_response_request(self) -> ResponsesRequest:
        """One that would go on with the conversation."""
        fields = ("model", "input", "previous_response_id", "instructions", "tools", "reasoning")
        given = {name: getattr(self, name) for name in fields if getattr(self, name) is not None}
        return ResponsesRequest.model_validate(given)


class Forgotten(BaseModel):
    """What the next answer does not see."""

    history: int = Field(description="tokens of the conversation, as its session has them; else as it is written now")
    retained: int = Field(description="those of them that the item has, or the request's own head")
    evicted: int = Field(description="those that are forgotten")
    session: str | None = Field(description="that has the conversation; null: none has")


class CompactedResponse(BaseModel):
    """A conversation made small."""

    id: str
    object: Literal["response.compaction"] = "response.compaction"
    created_at: int = Field(description="Unix time in seconds")
    output: list[OutputCompaction] = Field(description="one item, to be sent in the place of all others")
    usage: ResponseUsage
    kakeya: Forgotten
