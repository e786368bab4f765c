"""The answers of POST /v1/completions."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field

from kakeya_http_shim.answers.usage import Usage, usage
from kakeya_http_shim.answers.writer import Heading, Whole
from kakeya_http_shim.choices.choice import Ended, FinishReason
from kakeya_http_shim.text.answer_text import Delta, Likelihood


class CompletionLogprobs(BaseModel):
    """Natural logarithms, of the raw logits' softmax; each list has one entry a token."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int] = Field(description="characters of the answer before the token")


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


class CompletionWriter:
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

    def piece(self, heading: Heading, index: int, delta: Delta, *, is_first: bool) -> bytes:
        return self._chunk(heading, self._choice(index, delta, None))

    def end(self, heading: Heading, index: int, ended: Ended, *, is_first: bool) -> bytes:
        return self._chunk(heading, self._choice(index, Delta(""), ended.finish_reason))

    def usage(self, heading: Heading, ended: Sequence[Ended]) -> bytes:
        return self._chunk(heading, None, self._usage(ended))

    def whole(self, heading: Heading, answers: Sequence[Whole]) -> bytes:
        ended = [answer.ended for answer in answers]
        choices = [
            self._choice(index, answer.delta, answer.ended.finish_reason) for index, answer in enumerate(answers)
        ]
        completion = Completion(**vars(heading), object="text_completion", choices=choices, usage=self._usage(ended))
        return completion.model_dump_json(exclude_unset=True).encode()

    def _usage(self, ended: Sequence[Ended]) -> Usage:
        return usage(ended[:: self._num_choices], ended)

    def _choice(self, index: int, delta: Delta, finish_reason: FinishReason | None) -> CompletionChoice:
        # Completions have no place for thoughts; here nothing splits them off.
        logprobs = _logprobs(delta.likelihoods) if self._has_logprobs and (delta or finish_reason is None) else None
        return CompletionChoice(index=index, text=delta.content, logprobs=logprobs, finish_reason=finish_reason)

    def _chunk(self, heading: Heading, choice: CompletionChoice | None, counted: Usage | None = None) -> bytes:
        counts: dict[str, Any] = {"usage": counted} if self._includes_usage else {}
        chunk = Completion(**vars(heading), object="text_completion", choices=[choice] if choice else [], **counts)
        return chunk.model_dump_json(exclude_unset=True).encode()


def _logprobs(likelihoods: Sequence[Likelihood]) -> CompletionLogprobs:
    return CompletionLogprobs(
        tokens=[each.text for each in likelihoods],
        token_logprobs=[each.logprob for each in likelihoods],
        top_logprobs=[{text: logprob for text, _, logprob in each.likeliest} for each in likelihoods],
        text_offset=[each.offset for each in likelihoods],
    )
