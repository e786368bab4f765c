"""The answer of POST /v1/responses, as Open Responses has it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from kakeya_http_shim.answers.usage import Sight

Status = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(BaseModel):
    """A text that the model said."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[Any] = Field(description="none")
    logprobs: list[Any] = Field(description="none; chat completions have them")


class ReasoningText(BaseModel):
    """What the model thought."""

    type: Literal["reasoning_text"] = "reasoning_text"
    text: str


class OutputMessage(BaseModel):
    """What the model said."""

    type: Literal["message"] = "message"
    id: str
    status: ItemStatus
    role: Literal["assistant"] = "assistant"
    content: list[OutputText] = Field(description="one part, and none in the event that begins the item")


class OutputReasoning(BaseModel):
    """What the model thought before it spoke; it may come back, and need not."""

    type: Literal["reasoning"] = "reasoning"
    id: str
    summary: list[Any] = Field(description="none: nothing summarizes a thought")
    content: list[ReasoningText] = Field(description="one part, and none in the event that begins the item")
    encrypted_content: str | None = Field(
        description="the same once it has ended, where `include` asks for it; nobody but this server can read it"
    )


class OutputCall(BaseModel):
    """A call of a function."""

    type: Literal["function_call"] = "function_call"
    id: str
    status: ItemStatus
    call_id: str = Field(description="nine letters and digits; what the function answers names it")
    name: str
    namespace: str = Field("", description="that it was offered in; not there where it was in none")
    arguments: str = Field(description="JSON, an object; empty in the event that begins the item")


class OutputCompaction(BaseModel):
    """All that was said before it, to be sent in the place of that."""

    type: Literal["compaction"] = "compaction"
    id: str
    encrypted_content: str = Field(description="nobody but this server can read it")


OutputItem = Annotated[OutputMessage | OutputReasoning | OutputCall | OutputCompaction, Field(discriminator="type")]


class IncompleteDetails(BaseModel):
    """Why an answer has no end."""

    reason: Literal["max_output_tokens", "model_context_window_exceeded"]


class ResponseError(BaseModel):
    """Why there is no answer."""

    code: str
    message: str


class InputTokensDetails(BaseModel):
    """Of the tokens before the answer."""

    cached_tokens: int = Field(description="not computed again, since the conversation's session had them")


class OutputTokensDetails(BaseModel):
    """Of the answer's tokens."""

    reasoning_tokens: int = Field(description="up to the one that ended the thought; 0 where none is told apart")


class ResponseUsage(BaseModel):
    """Tokens, all counted by the runtime."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int = Field(description="one that ended the answer included")
    output_tokens_details: OutputTokensDetails
    total_tokens: int
    kakeya: Sight


class ConversationName(BaseModel):
    """A conversation of /v1/conversations."""

    id: str


class ResponseObject(BaseModel):
    """The answer to a request, with what was asked for."""

    id: str
    object: Literal["response"] = "response"
    created_at: int = Field(description="Unix time in seconds")
    completed_at: int | None = Field(description="Unix time in seconds; null where it did not come to its end")
    status: Status
    incomplete_details: IncompleteDetails | None
    error: ResponseError | None
    model: str
    output: list[OutputItem]
    usage: ResponseUsage | None = Field(description="null before its end")
    unfinished_call: str = Field(
        "", description="what the model wrote of a call that it did not end, behind others that it did"
    )
    previous_response_id: str | None
    conversation: ConversationName | None = Field(None, description="that it is in; not there where it is in none")
    instructions: str | None
    tools: list[dict[str, Any]] = Field(description="those that the model was told of")
    tool_choice: str | dict[str, Any]
    parallel_tool_calls: bool
    text: dict[str, Any]
    reasoning: dict[str, Any] | None
    truncation: Literal["auto", "disabled"]
    temperature: float
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    top_logprobs: int
    max_output_tokens: int | None
    max_tool_calls: int | None
    store: bool = Field(description="whether it can be asked for later")
    background: Literal[False]
    service_tier: str
    metadata: dict[str, str]
    safety_identifier: str | None
    prompt_cache_key: str | None
    user: str | None
