"""The events of a stream of POST /v1/responses."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from kakeya_http_shim.responses_api.response_object import OutputItem, OutputText, ReasoningText, ResponseObject

Part = Annotated[OutputText | ReasoningText, Field(discriminator="type")]


class _Event(BaseModel):
    sequence_number: int = Field(description="from 0 within its stream")


class ResponseCreated(_Event):
    """The first event: the answer has a session."""

    type: Literal["response.created"] = "response.created"
    response: ResponseObject


class ResponseInProgress(_Event):
    """The answer is made."""

    type: Literal["response.in_progress"] = "response.in_progress"
    response: ResponseObject


class OutputItemAdded(_Event):
    """An item begins."""

    type: Literal["response.output_item.added"] = "response.output_item.added"
    output_index: int
    item: OutputItem


class OutputItemDone(_Event):
    """An item ends."""

    type: Literal["response.output_item.done"] = "response.output_item.done"
    output_index: int
    item: OutputItem


class _OfItem(_Event):
    item_id: str
    output_index: int


class _OfPart(_OfItem):
    content_index: Literal[0]


class ContentPartAdded(_OfPart):
    """A part of an item begins."""

    type: Literal["response.content_part.added"] = "response.content_part.added"
    part: Part


class ContentPartDone(_OfPart):
    """A part of an item ends."""

    type: Literal["response.content_part.done"] = "response.content_part.done"
    part: Part


class OutputTextDelta(_OfPart):
    """A piece of a text."""

    type: Literal["response.output_text.delta"] = "response.output_text.delta"
    delta: str
    logprobs: list[Any] = Field(description="none")


class OutputTextDone(_OfPart):
    """A text is whole."""

    type: Literal["response.output_text.done"] = "response.output_text.done"
    text: str
    logprobs: list[Any] = Field(description="none")


class ReasoningTextDelta(_OfPart):
    """A piece of a thought; so named by OpenAI, and read by clients, where Open Responses has `response.reasoning`."""

    type: Literal["response.reasoning_text.delta"] = "response.reasoning_text.delta"
    delta: str


class ReasoningTextDone(_OfPart):
    """A thought is whole."""

    type: Literal["response.reasoning_text.done"] = "response.reasoning_text.done"
    text: str


class CallArgumentsDelta(_OfItem):
    """A piece of what a function is called with."""

    type: Literal["response.function_call_arguments.delta"] = "response.function_call_arguments.delta"
    delta: str


class CallArgumentsDone(_OfItem):
    """What a function is called with is whole."""

    type: Literal["response.function_call_arguments.done"] = "response.function_call_arguments.done"
    name: str
    arguments: str


class ResponseCompleted(_Event):
    """The last event of an answer that came to its end."""

    type: Literal["response.completed"] = "response.completed"
    response: ResponseObject


class ResponseIncomplete(_Event):
    """The last event of an answer that was cut."""

    type: Literal["response.incomplete"] = "response.incomplete"
    response: ResponseObject


class StreamErrorBody(BaseModel):
    """What went wrong."""

    type: str
    code: str | None
    message: str
    param: str | None


class StreamError(_Event):
    """What went wrong; `response.failed` follows. The same twice: OpenAI has it flat, Open Responses in `error`."""

    type: Literal["error"] = "error"
    code: str | None
    message: str
    param: str | None
    error: StreamErrorBody


class ResponseFailed(_Event):
    """The last event of an answer that failed."""

    type: Literal["response.failed"] = "response.failed"
    response: ResponseObject


ItemEvent = (
    OutputItemAdded
    | OutputItemDone
    | ContentPartAdded
    | ContentPartDone
    | OutputTextDelta
    | OutputTextDone
    | ReasoningTextDelta
    | ReasoningTextDone
    | CallArgumentsDelta
    | CallArgumentsDone
)
StreamEvent = (
    ItemEvent
    | ResponseCreated
    | ResponseInProgress
    | ResponseCompleted
    | ResponseIncomplete
    | StreamError
    | ResponseFailed
)
RESPONSE_EVENTS: tuple[type[BaseModel], ...] = (
    *(ResponseCreated, ResponseInProgress, OutputItemAdded, OutputItemDone, ContentPartAdded, ContentPartDone),
    *(OutputTextDelta, OutputTextDone, ReasoningTextDelta, ReasoningTextDone, CallArgumentsDelta, CallArgumentsDone),
    *(ResponseCompleted, ResponseIncomplete, StreamError, ResponseFailed),
)
