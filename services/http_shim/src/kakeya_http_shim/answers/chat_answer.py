"""The answers of POST /v1/chat/completions."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field

from kakeya_http_shim.answers.usage import Usage, usage, usage_so_far
from kakeya_http_shim.answers.writer import Heading, Whole
from kakeya_http_shim.choices.choice import Ended, FinishReason, Spent
from kakeya_http_shim.text.answer_text import Delta, Likelihood


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


class AnswerMessage(BaseModel):
    """The answer."""

    role: Literal["assistant"] = "assistant"
    content: str
    reasoning_content: str = Field("", description="what the model thought, where it does")
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


class MessageDelta(BaseModel):
    """A piece of an answer."""

    role: Literal["assistant"] = Field("assistant", description="in the first one")
    content: str = ""
    reasoning_content: str = ""


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


class ChatWriter:
    """Writes chat answers.

    Args:
        has_logprobs: whether they were asked for.
        includes_usage: whether a stream has `usage`.
    """

    id_prefix = "chatcmpl-"

    def __init__(self, *, has_logprobs: bool, includes_usage: bool) -> None:
        self._has_logprobs = has_logprobs
        self._includes_usage = includes_usage

    def piece(self, heading: Heading, index: int, delta: Delta, *, is_first: bool, spent: Spent | None = None) -> bytes:
        given = {"content": delta.content} if delta.content or not delta.reasoning else {}
        if delta.reasoning:
            given["reasoning_content"] = delta.reasoning
        choice = self._choice(index, given, is_first, self._logprobs(delta.likelihoods), None)
        return self._chunk(heading, choice, usage_so_far(spent))

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
        thoughts = {"reasoning_content": answer.delta.reasoning} if answer.delta.reasoning else {}
        return ChatChoice(
            index=index,
            message=AnswerMessage(role="assistant", content=answer.delta.content, refusal=None, **thoughts),
            logprobs=self._logprobs(answer.delta.likelihoods),
            finish_reason=answer.ended.finish_reason,
        )

    def _choice(
        self,
        index: int,
        given: dict[str, str],
        is_first: bool,
        logprobs: ChatLogprobs | None,
        finish_reason: FinishReason | None,
    ) -> ChatChunkChoice:
        role = {"role": "assistant"} if is_first else {}
        delta = MessageDelta.model_validate(role | given)
        return ChatChunkChoice(index=index, delta=delta, logprobs=logprobs, finish_reason=finish_reason)

    def _chunk(self, heading: Heading, choice: ChatChunkChoice | None, counted: Usage | None = None) -> bytes:
        counts: dict[str, Any] = {"usage": counted} if self._includes_usage else {}
        chunk = ChatChunk(**vars(heading), object="chat.completion.chunk", choices=[choice] if choice else [], **counts)
        return chunk.model_dump_json(exclude_unset=True).encode()

    def _logprobs(self, likelihoods: Sequence[Likelihood]) -> ChatLogprobs | None:
        if not self._has_logprobs:
            return None
        return ChatLogprobs(content=[_token_logprob(each) for each in likelihoods], refusal=None)


def _token_logprob(likelihood: Likelihood) -> TokenLogprob:
    top = [TopLogprob(token=text, logprob=logprob, bytes=list(data)) for text, data, logprob in likelihood.likeliest]
    return TokenLogprob(
        token=likelihood.text, logprob=likelihood.logprob, bytes=list(likelihood.data), top_logprobs=top
    )
