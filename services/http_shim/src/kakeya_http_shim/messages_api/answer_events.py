"""The answers of POST /v1/messages: a message, or the events of its stream."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from kakeya_http_shim.answers.usage import Sight

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]
UnfinishedCall = Annotated[
    str, Field(description="what the model wrote of a call that it did not end, behind others that it did")
]


class TextAnswer(BaseModel):
    """What the model said."""

    type: Literal["text"] = "text"
    text: str


class ThinkingAnswer(BaseModel):
    """What the model thought."""

    type: Literal["thinking"] = "thinking"
    thinking: str
    signature: str = Field(description="a digest of the thought; it need not come back, nor be right")


class ToolUseAnswer(BaseModel):
    """A call of a tool."""

    type: Literal["tool_use"] = "tool_use"
    id: str = Field(description="nine letters and digits")
    name: str
    input: dict[str, Any] = Field(description="empty at the beginning of its block in a stream")


BlockAnswer = Annotated[TextAnswer | ThinkingAnswer | ToolUseAnswer, Field(discriminator="type")]


class MessagesUsage(BaseModel):
    """Tokens, all counted by the runtime."""

    input_tokens: int = Field(description="that the request added to its session's history")
    cache_creation_input_tokens: int = Field(description="0: nothing is written beside the session")
    cache_read_input_tokens: int = Field(description="not computed again, since the conversation's session had them")
    output_tokens: int = Field(description="one that ended the answer included")
    kakeya: Sight


class AppliedEdits(BaseModel):
    """What became of `context_management`."""

    applied_edits: list[dict[str, Any]] = Field(description="none")


class MessageAnswer(BaseModel):
    """The answer to a request that is no stream."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[BlockAnswer]
    stop_reason: StopReason | None = Field(description="null at the beginning of a stream")
    stop_sequence: str | None = Field(description="that ended the answer")
    usage: MessagesUsage
    unfinished_call: UnfinishedCall = ""
    context_management: AppliedEdits | None = Field(None, description="where the request has it")


class MessageStart(BaseModel):
    """The first event of a stream."""

    type: Literal["message_start"] = "message_start"
    message: MessageAnswer


class BlockStart(BaseModel):
    """A block begins."""

    type: Literal["content_block_start"] = "content_block_start"
    index: int
    content_block: BlockAnswer


class TextPiece(BaseModel):
    """Of a text."""

    type: Literal["text_delta"] = "text_delta"
    text: str


class ThinkingPiece(BaseModel):
    """Of a thought."""

    type: Literal["thinking_delta"] = "thinking_delta"
    thinking: str


class SignaturePiece(BaseModel):
    """The last one of a thought."""

    type: Literal["signature_delta"] = "signature_delta"
    signature: str


class InputPiece(BaseModel):
    """Of what a tool is called with."""

    type: Literal["input_json_delta"] = "input_json_delta"
    partial_json: str = Field(description="those of one block, joined, are a JSON object")


Piece = Annotated[TextPiece | ThinkingPiece | SignaturePiece | InputPiece, Field(discriminator="type")]


class BlockDelta(BaseModel):
    """A piece of a block."""

    type: Literal["content_block_delta"] = "content_block_delta"
    index: int
    delta: Piece


class BlockStop(BaseModel):
    """A block ends."""

    type: Literal["content_block_stop"] = "content_block_stop"
    index: int


class Stopped(BaseModel):
    """How the answer ended."""

    stop_reason: StopReason
    stop_sequence: str | None


class AnswerEnd(BaseModel):
    """The answer has ended."""

    type: Literal["message_delta"] = "message_delta"
    delta: Stopped
    usage: MessagesUsage
    unfinished_call: UnfinishedCall = ""
    context_management: AppliedEdits | None = None


class MessageStop(BaseModel):
    """The last event of a stream."""

    type: Literal["message_stop"] = "message_stop"


class Ping(BaseModel):
    """A sign of life."""

    type: Literal["ping"] = "ping"


StreamEvent = MessageStart | BlockStart | BlockDelta | BlockStop | AnswerEnd | MessageStop | Ping
STREAM_EVENTS: tuple[type[BaseModel], ...] = (
    MessageStart,
    BlockStart,
    BlockDelta,
    BlockStop,
    AnswerEnd,
    MessageStop,
    Ping,
)


class MessagesErrorBody(BaseModel):
    """What went wrong."""

    type: str
    message: str


class MessagesError(BaseModel):
    """The answer to a request that failed; in a stream its last event."""

    type: Literal["error"]
    error: MessagesErrorBody
    request_id: str
