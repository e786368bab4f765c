"""The answers of POST /v1/chat/completions."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from kakeya_http_shim.answers.stream_events import framed
from kakeya_http_shim.answers.usage import Usage, usage, usage_so_far
from kakeya_http_shim.answers.writer import Heading, OpenAiStream, Whole
from kakeya_http_shim.choices.choice import Ended, FinishReason
from kakeya_http_shim.choices.opened import Spent
from kakeya_http_shim.text.delta import Delta, Likelihood
from kakeya_http_shim.tools.deltas import ArgumentText, CallBegun, Content, MadeCall, Unfinished, joined
from kakeya_http_shim.tools.deltas import Delta as Part


class TopLogprob(BaseModel):
    """One of the likeliest tokens."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    """The token that was chosen, and the likeliest."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    """Natural logarithms, of the raw logits' softmax."""

    content: list[TokenLogprob] = Field(description="thoughts included")
    refusal: None = None


class CalledFunction(BaseModel):
    """What is called, and with what."""

    name: str
    arguments: str = Field(description="JSON, an object")


class CalledTool(BaseModel):
    """A call of a tool."""

    id: str = Field(description="nine letters and digits")
    type: Literal["function"] = "function"
    function: CalledFunction


UnfinishedCall = Annotated[
    str, Field(description="what the model wrote of a call that it did not end, behind others that it did")
]


class AnswerMessage(BaseModel):
    """The answer."""

    role: Literal["assistant"] = "assistant"
    content: str | None = Field(description="null where it is nothing but calls")
    reasoning_content: str = Field("", description="what the model thought, where it does")
    tool_calls: list[CalledTool] = Field([], description="where tools are called")
    unfinished_call: UnfinishedCall = ""
    refusal: None = None


class ChatChoice(BaseModel):
    """One answer."""

    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason


class _Headed(BaseModel):
    id: str
    created: int = Field(description="Unix time in seconds")
    model: str
    system_fingerprint: str


class ChatCompletion(_Headed):
    """The answer to a request that is no stream."""

    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]
    usage: Usage


class FunctionDelta(BaseModel):
    """A piece of what is called."""

    name: str = Field("", description="in the first one of a call")
    arguments: str = Field(description="those of one call, joined, are a JSON object")


class CallDelta(BaseModel):
    """A piece of a call, which is told once it is whole."""

    index: int = Field(description="of the call within the answer")
    id: str = Field("", description="in the first one of a call")
    type: Literal["function"] = Field("function", description="likewise")
    function: FunctionDelta


class MessageDelta(BaseModel):
    """A piece of an answer."""

    role: Literal["assistant"] = Field("assistant", description="in the first one")
    content: str | None = Field("", description="null where an answer begins with a call")
    reasoning_content: str = ""
    tool_calls: list[CallDelta] = []
    unfinished_call: UnfinishedCall = ""


class ChatChunkChoice(BaseModel):
    """A piece of one answer."""

    index: int
    delta: MessageDelta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None


class ChatChunk(_Headed):
    """An event of a stream."""

    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: list[ChatChunkChoice] = Field(description="none in the last event, which has `usage`")
    usage: Usage | None = Field(None, description="with stream_options.include_usage; null but for the last event")


class ChatWriter(OpenAiStream):
    """Writes chat answers.

    Args:
        has_logprobs: whether they were asked for.
        includes_usage: whether a stream has `usage`.
    """

    id_prefix = "chatcmpl-"

    def __init__(self, *, has_logprobs: bool, includes_usage: bool) -> None:
        self._has_logprobs = has_logprobs
        self._includes_usage = includes_usage

    def pieces(
        self, heading: Heading, index: int, delta: Delta, *, is_first: bool, spent: Spent | None = None
    ) -> Sequence[bytes]:
        events = []
        for place, given in enumerate(_given(delta)):
            likelihoods = delta.likelihoods if place == 0 else ()
            choice = self._choice(index, given, is_first and place == 0, self._logprobs(likelihoods), None)
            events.append(self._chunk(heading, choice, usage_so_far(spent)))
        return events

    def end(self, heading: Heading, index: int, ended: Ended, *, is_first: bool, spent: Spent | None = None) -> bytes:
        given = {"content": ""} if is_first else {}
        return self._chunk(
            heading, self._choice(index, given, is_first, None, ended.finish_reason), usage_so_far(spent)
        )

    def usage(self, heading: Heading, answers: Sequence[Spent]) -> bytes:
        return self._chunk(heading, None, usage(answers[:1], answers))

    def whole(self, heading: Heading, answers: Sequence[Whole]) -> bytes:
        spent = [answer.ended.spent for answer in answers]
        completion = ChatCompletion(
            **vars(heading),
            object="chat.completion",
            choices=[self._whole_choice(index, answer) for index, answer in enumerate(answers)],
            usage=usage(spent[:1], spent),
        )
        return completion.model_dump_json(exclude_unset=True).encode()

    def _whole_choice(self, index: int, answer: Whole) -> ChatChoice:
        said = joined(answer.delta.parts)
        more: dict[str, Any] = {
            "reasoning_content": answer.delta.reasoning,
            "tool_calls": [_called(call) for call in said.calls],
            "unfinished_call": said.unfinished,
        }
        given = {name: value for name, value in more.items() if value}
        content = None if said.calls and not said.content else said.content
        return ChatChoice(
            index=index,
            message=AnswerMessage(role="assistant", content=content, refusal=None, **given),
            logprobs=self._logprobs(answer.delta.likelihoods),
            finish_reason=answer.ended.finish_reason,
        )

    def _choice(
        self,
        index: int,
        given: dict[str, Any],
        is_first: bool,
        logprobs: ChatLogprobs | None,
        finish_reason: FinishReason | None,
    ) -> ChatChunkChoice:
        role: dict[str, Any] = {"role": "assistant"} if is_first else {}
        if is_first and "tool_calls" in given:
            role["content"] = None
        delta = MessageDelta.model_validate(role | given)
        return ChatChunkChoice(index=index, delta=delta, logprobs=logprobs, finish_reason=finish_reason)

    def _chunk(self, heading: Heading, choice: ChatChunkChoice | None, counted: Usage | None = None) -> bytes:
        counts: dict[str, Any] = {"usage": counted} if self._includes_usage else {}
        chunk = ChatChunk(**vars(heading), object="chat.completion.chunk", choices=[choice] if choice else [], **counts)
        return framed(chunk.model_dump_json(exclude_unset=True).encode())

    def _logprobs(self, likelihoods: Sequence[Likelihood]) -> ChatLogprobs | None:
        if not self._has_logprobs:
            return None
        return ChatLogprobs(content=[_token_logprob(each) for each in likelihoods], refusal=None)


def _given(delta: Delta) -> list[dict[str, Any]]:
    """What the events of a piece say, one part each; thoughts with the content that follows them."""
    told = [_told(part) for part in delta.parts]
    if delta.reasoning:
        content = told.pop(0) if delta.parts and isinstance(delta.parts[0], Content) else {}
        told.insert(0, content | {"reasoning_content": delta.reasoning})
    return told or [{"content": ""}]


def _told(part: Part) -> dict[str, Any]:
    match part:
        case Content(text):
            return {"content": text}
        case CallBegun(index, id_, name):
            begun = {"index": index, "id": id_, "type": "function", "function": {"name": name, "arguments": ""}}
            return {"tool_calls": [begun]}
        case ArgumentText(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
        case Unfinished(text):
            return {"unfinished_call": text}


def _called(call: MadeCall) -> CalledTool:
    function = CalledFunction(name=call.name, arguments=call.arguments)
    return CalledTool(id=call.id, type="function", function=function)


def _token_logprob(likelihood: Likelihood) -> TokenLogprob:
    top = [TopLogprob(token=text, logprob=logprob, bytes=list(data)) for text, data, logprob in likelihood.likeliest]
    return TokenLogprob(
        token=likelihood.text, logprob=likelihood.logprob, bytes=list(likelihood.data), top_logprobs=top
    )
