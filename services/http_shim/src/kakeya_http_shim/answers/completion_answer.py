"""The answers of POST /v1/completions."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field

from kakeya_http_shim.answers.stream_events import framed
from kakeya_http_shim.answers.usage import Usage, usage, usage_so_far
from kakeya_http_shim.answers.writer import Heading, OpenAiStream, Whole
from kakeya_http_shim.choices.choice import Ended, FinishReason
from kakeya_http_shim.choices.opened import Spent
from kakeya_http_shim.text.delta import Delta, Likelihood


class CompletionLogprobs(BaseModel):
    """Natural logarithms, of the raw logits' softmax; each list has one entry a token."""

    tokens: list[str]
    token_logprobs: list[float | None] = Field(description="null for the first token of an echoed prompt")
    top_logprobs: list[dict[str, float] | None] = Field(description="the same")
    text_offset: list[int] = Field(description="characters before the token, of an echoed prompt as well")


class CompletionChoice(BaseModel):
    """One answer, or a piece of it."""

    index: int = Field(description="of the prompt times n, plus that of its answer")
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None = Field(description="null in a stream, but for its last piece")


class Completion(BaseModel):
    """The answer to a request, or an event of a stream."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int = Field(description="Unix time in seconds")
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: Usage | None = Field(None, description="in a stream as with chats")


class CompletionWriter(OpenAiStream):
    """Writes completions.

    Args:
        num_choices: answers of each prompt.
        has_logprobs: whether they were asked for.
        includes_usage: whether a stream has `usage`.
    """

    id_prefix = "cmpl-"

    def __init__(self, *, num_choices: int, has_logprobs: bool, includes_usage: bool) -> None:
        self._num_choices = num_choices
        self._has_logprobs = has_logprobs
        self._includes_usage = includes_usage

    def pieces(
        self, heading: Heading, index: int, delta: Delta, *, is_first: bool, spent: Spent | None = None
    ) -> Sequence[bytes]:
        return [self._chunk(heading, self._choice(index, delta, None), usage_so_far(spent))]

    def end(self, heading: Heading, index: int, ended: Ended, *, is_first: bool, spent: Spent | None = None) -> bytes:
        return self._chunk(heading, self._choice(index, Delta(), ended.finish_reason), usage_so_far(spent))

    def usage(self, heading: Heading, answers: Sequence[Spent]) -> bytes:
        return self._chunk(heading, None, self._usage(answers))

    def whole(self, heading: Heading, answers: Sequence[Whole]) -> bytes:
        spent = [answer.ended.spent for answer in answers]
        choices = [
            self._choice(index, answer.delta, answer.ended.finish_reason) for index, answer in enumerate(answers)
        ]
        completion = Completion(**vars(heading), object="text_completion", choices=choices, usage=self._usage(spent))
        return completion.model_dump_json(exclude_unset=True).encode()

    def _usage(self, answers: Sequence[Spent]) -> Usage:
        return usage(answers[:: self._num_choices], answers)

    def _choice(self, index: int, delta: Delta, finish_reason: FinishReason | None) -> CompletionChoice:
        # Completions have no place for thoughts; here nothing splits them off.
        logprobs = _logprobs(delta.likelihoods) if self._has_logprobs and (delta or finish_reason is None) else None
        return CompletionChoice(index=index, text=delta.content, logprobs=logprobs, finish_reason=finish_reason)

    def _chunk(self, heading: Heading, choice: CompletionChoice | None, counted: Usage | None = None) -> bytes:
        counts: dict[str, Any] = {"usage": counted} if self._includes_usage else {}
        chunk = Completion(**vars(heading), object="text_completion", choices=[choice] if choice else [], **counts)
        return framed(chunk.model_dump_json(exclude_unset=True).encode())


def _logprobs(likelihoods: Sequence[Likelihood]) -> CompletionLogprobs:
    return CompletionLogprobs(
        tokens=[each.text for each in likelihoods],
        token_logprobs=[each.logprob if each.has_logprob else None for each in likelihoods],
        top_logprobs=[_top(each) for each in likelihoods],
        text_offset=[each.offset for each in likelihoods],
    )


def _top(likelihood: Likelihood) -> dict[str, float] | None:
    """Of tokens that are the same text, such as halves of characters, the likeliest."""
    if not likelihood.has_logprob:
        return None
    top: dict[str, float] = {}
    for text, _, logprob in likelihood.likeliest:
        top.setdefault(text, logprob)
    return top
