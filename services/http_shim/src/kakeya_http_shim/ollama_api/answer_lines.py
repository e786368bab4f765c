"""The answers of POST /api/chat and /api/generate: one object, or the lines of a stream."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from kakeya_http_shim.answers.usage import Sight

DoneReason = Literal["stop", "length", "load"]
UnfinishedCall = Annotated[
    str, Field(description="what the model wrote of a call that it did not end, behind others that it did")
]


class OllamaCalledFunction(BaseModel):
    """What is called, and with what."""

    index: int = Field(description="of the call within the answer")
    name: str
    arguments: dict[str, Any]


class OllamaCalledTool(BaseModel):
    """A call of a tool."""

    id: str = Field(description="nine letters and digits; it need not come back")
    function: OllamaCalledFunction


class OllamaAnswerMessage(BaseModel):
    """The answer, or a piece of it."""

    role: Literal["assistant"] = "assistant"
    content: str
    thinking: str = Field("", description="what the model thought, where it does")
    tool_calls: list[OllamaCalledTool] = Field([], description="where tools are called")
    unfinished_call: UnfinishedCall = ""


class OllamaToken(BaseModel):
    """A token, and how likely it was."""

    token: str
    logprob: float = Field(description="natural logarithm, of the raw logits' softmax")
    bytes: list[int]


class OllamaLogprob(OllamaToken):
    """The token that was chosen, and the likeliest."""

    top_logprobs: list[OllamaToken] = Field([], description="where they were asked for")


class _Line(BaseModel):
    model: str = Field(description="as the request names it")
    created_at: str = Field(description="RFC 3339, UTC")
    done: bool = Field(description="whether it is the end of the answer")
    done_reason: DoneReason | None = Field(None, description="at the end; `stop` also where tools are called")
    total_duration: int = Field(0, description="at the end: nanoseconds since the request was read")
    load_duration: int = Field(0, description="nanoseconds until its session was there")
    prompt_eval_count: int = Field(0, description="tokens in the history before the answer")
    prompt_eval_duration: int = Field(0, description="nanoseconds from there to the first token")
    eval_count: int = Field(0, description="tokens of the answer, one that ended it included")
    eval_duration: int = Field(0, description="nanoseconds from the first token to the end")
    logprobs: list[OllamaLogprob] = Field([], description="where they were asked for")
    kakeya: Sight | None = Field(None, description="at the end")


class ChatLine(_Line):
    """The next message of a chat, or a piece of it."""

    message: OllamaAnswerMessage


class GenerateLine(_Line):
    """The answer to a prompt, or a piece of it."""

    response: str
    thinking: str = Field("", description="what the model thought, where it does")


class OllamaError(BaseModel):
    """The answer to a request that failed; in a stream its last line."""

    error: str = Field(description="it begins with the field that is at fault, if one is")
