"""An AppendRequest and a GenerateRequest as the engine takes them, what their time was spent on, as spans, and by which
way the tokens of a Generate go to its router.

What they must not hold is refused here.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from kakeya_shared.contract.generation_limits import (
    MAX_APPEND_LOGPROBS,
    MAX_GRAMMAR_BYTES,
    MAX_LOGIT_BIASES,
    MAX_LOGPROBS,
    MAX_PENALTY,
    MAX_REASONING_MARK_TOKENS,
    MAX_REPETITION_PENALTY,
    MAX_STOP_SEQUENCE_TOKENS,
    MAX_STOP_SEQUENCES,
)
from kakeya_shared.errors.tree import InvalidField, TokenOutOfVocabulary
from kakeya_shared.rpc import tracing
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from kakeya_worker.engine.lanes.operation import Append, Generate
from kakeya_worker.engine.sampling.sampling import Sampling, TokenDetail
from kakeya_worker.grammars.grammar import Grammar
from kakeya_worker.grammars.reasoning import Reasoning
from kakeya_worker.service.answer_streams import AnswerStream, detail_message


def append(request: pb.AppendRequest, vocab_size: int) -> Append:
    """Raises InvalidField or TokenOutOfVocabulary."""
    check_vocabulary(request.token_ids, vocab_size)
    num_top_logprobs = request.logprobs if request.HasField("logprobs") else None
    if num_top_logprobs is not None:
        require(num_top_logprobs <= MAX_LOGPROBS, "logprobs", f"must be at most {MAX_LOGPROBS}")
        num_logprobs = len(request.token_ids) * (1 + num_top_logprobs)
        require(
            num_logprobs <= MAX_APPEND_LOGPROBS, "logprobs", f"{num_logprobs} in all; at most {MAX_APPEND_LOGPROBS}"
        )
    return Append(
        request.session_id,
        request.epoch,
        request.history_length,
        tuple(request.token_ids),
        num_top_logprobs,
        number=request.operation_number,
        history_digest=request.history_digest if request.HasField("history_digest") else None,
    )


def generate(
    request: pb.GenerateRequest,
    vocab_size: int,
    on_token: Callable[[int, TokenDetail | None], None],
    hand_over: Callable[[], None] | None = None,
) -> Generate:
    """Raises InvalidField or TokenOutOfVocabulary."""
    require(request.max_tokens >= 1, "max_tokens", "must be at least 1")
    require(len(request.previous_token_ids) <= request.max_tokens, "previous_token_ids", "are more than max_tokens")
    check_vocabulary(request.previous_token_ids, vocab_size)
    require(request.logprobs <= MAX_LOGPROBS, "logprobs", f"must be at most {MAX_LOGPROBS}")
    require(request.min_tokens <= request.max_tokens, "min_tokens", "must be at most max_tokens")
    is_endless = request.ignore_eos and request.HasField("grammar")
    require(not is_endless, "ignore_eos", "under a grammar an answer ends where that does")
    return Generate(
        request.session_id,
        request.epoch,
        request.history_length,
        number=request.operation_number,
        history_digest=request.history_digest if request.HasField("history_digest") else None,
        max_tokens=request.max_tokens,
        eos_token_ids=_eos_token_ids(request, vocab_size),
        sampling=_sampling(request.sampling, vocab_size) if request.HasField("sampling") else Sampling(),
        on_token=on_token,
        hand_over=hand_over,
        num_top_logprobs=request.logprobs if request.HasField("logprobs") else None,
        stop_token_sequences=_stop_token_sequences(request, vocab_size),
        acknowledges=request.acknowledges,
        previous_token_ids=tuple(request.previous_token_ids),
        min_tokens=request.min_tokens,
        ignores_eos=request.ignore_eos,
        closes=request.closes_session,
    )


def grammar(message: pb.Grammar) -> Grammar:
    """Raises InvalidField: there is nothing in it, or too much."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise InvalidField("grammar: has no kind", metadata={"field": "grammar"})
    texts = tuple(message.choice.texts) if kind == "choice" else (getattr(message, kind),)
    require(any(texts), f"grammar.{kind}", "is empty")
    num_bytes = sum(len(text.encode()) for text in texts)
    require(num_bytes <= MAX_GRAMMAR_BYTES, f"grammar.{kind}", f"{num_bytes} bytes; at most {MAX_GRAMMAR_BYTES}")
    return Grammar(kind, texts)


def reasoning(request: pb.GenerateRequest, vocab_size: int) -> Reasoning:
    """Raises InvalidField or TokenOutOfVocabulary."""
    asked = request.reasoning
    for name, token_ids, least in (("end", asked.end_token_ids, 1), ("begin", asked.begin_token_ids, 0)):
        field = f"reasoning.{name}_token_ids"
        is_possible = least <= len(token_ids) <= MAX_REASONING_MARK_TOKENS
        require(is_possible, field, f"must have {least} to {MAX_REASONING_MARK_TOKENS} tokens")
        check_vocabulary(token_ids, vocab_size)
        require(set(token_ids).isdisjoint(request.eos_token_ids), field, "has an EOS token")
    return Reasoning(tuple(asked.end_token_ids), tuple(asked.begin_token_ids), asked.max_tokens)


@contextmanager
def timed_append(append: Append) -> Iterator[None]:
    """Tells spans of it once it is over: `queue` until its first step, then `prefill`, one for all its chunks."""
    try:
        yield
    finally:
        tracing.past("queue", append.started, append.stepped)
        tracing.past("prefill", append.stepped, append.ended, appended=append.num_done, chunks=append.num_steps)


@contextmanager
def timed_generate(generate: Generate) -> Iterator[None]:
    """Likewise: `queue`, `first_token` until that is chosen, then `decode`, one for all that follow."""
    num_before = generate.num_generated
    try:
        yield
    finally:
        tracing.past("queue", generate.started, generate.stepped)
        tracing.past("first_token", generate.stepped, generate.first_token)
        num_own = generate.num_generated - num_before
        tracing.past(
            "decode",
            generate.first_token,
            generate.ended,
            generated=num_own,
            steps=generate.num_steps,
            drafted=generate.num_drafted,
            accepted=generate.num_accepted,
        )


class Answer(Protocol):
    """Attributes:
    hand_over: see `Generate`.
    """

    @property
    def hand_over(self) -> Callable[[], None] | None: ...

    def put(self, token_id: int, detail: TokenDetail | None) -> None:
        """A token; on the engine's thread."""

    def responses(self, generate: Generate) -> AsyncIterator[pb.GenerateResponse]:
        """Of the call, until the Generate has ended."""


class OwnAnswer:
    """Its tokens go with the call.

    Args:
        acknowledge: see `Engine.acknowledge`.
    """

    hand_over = None

    def __init__(self, acknowledge: Callable[[Generate, int], None]) -> None:
        self._acknowledge = acknowledge
        self._loop = asyncio.get_running_loop()
        self._unread: asyncio.Queue[pb.GenerateResponse | None] = asyncio.Queue()  # None: it has ended

    def put(self, token_id: int, detail: TokenDetail | None) -> None:
        told = None if detail is None else detail_message(detail)
        self._put(pb.GenerateResponse(token_id=token_id, detail=told))

    async def responses(self, generate: Generate) -> AsyncIterator[pb.GenerateResponse]:
        generate.future.add_done_callback(lambda _: self._put(None))
        num_sent = len(generate.previous_token_ids)
        while (response := await self._unread.get()) is not None:
            yield response
            num_sent += 1
            if not generate.acknowledges:
                self._acknowledge(generate, num_sent)

    def _put(self, response: pb.GenerateResponse | None) -> None:
        self._loop.call_soon_threadsafe(self._unread.put_nowait, response)


class SharedAnswer:
    """Its tokens go by a stream, in which it has a number."""

    def __init__(self, stream: AnswerStream, number: int) -> None:
        self._stream = stream
        self._number = number
        self.hand_over = stream.hand_over

    def put(self, token_id: int, detail: TokenDetail | None) -> None:
        self._stream.put(self._number, token_id, detail)

    async def responses(self, generate: Generate) -> AsyncIterator[pb.GenerateResponse]:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        generate.future.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set))
        with self._stream.gives(self._number, generate):
            await ended.wait()
        none: tuple[pb.GenerateResponse, ...] = ()
        for response in none:
            yield response


def check_vocabulary(token_ids: Iterable[int], vocab_size: int) -> None:
    """Raises TokenOutOfVocabulary: one id out of range would fail the whole step, and other sessions with it."""
    largest = max(token_ids, default=0)
    if largest >= vocab_size:
        raise TokenOutOfVocabulary(f"token id {largest} is outside the vocabulary of {vocab_size}")


def _sampling(asked: pb.Sampling, vocab_size: int) -> Sampling:
    require(math.isfinite(asked.temperature) and asked.temperature >= 0, "temperature", "must be finite, 0 or above")
    require(0 < asked.top_p <= 1, "top_p", "must be above 0 and at most 1")
    require(0 <= asked.min_p <= 1, "min_p", "must be within 0 and 1")
    for name in ("presence_penalty", "frequency_penalty"):
        require(abs(getattr(asked, name)) <= MAX_PENALTY, name, f"must be within -{MAX_PENALTY:g} and {MAX_PENALTY:g}")
    repetition_penalty = asked.repetition_penalty or 1.0  # 0: the caller does not know the field, or leaves it
    is_within = 0 < repetition_penalty <= MAX_REPETITION_PENALTY
    require(is_within, "repetition_penalty", f"must be above 0 and at most {MAX_REPETITION_PENALTY:g}")
    require(len(asked.logit_bias) <= MAX_LOGIT_BIASES, "logit_bias", f"must have at most {MAX_LOGIT_BIASES} entries")
    require(all(map(math.isfinite, asked.logit_bias.values())), "logit_bias", "must be finite")
    check_vocabulary(asked.logit_bias, vocab_size)
    return Sampling(
        seed=asked.seed,
        temperature=asked.temperature,
        top_p=asked.top_p,
        top_k=asked.top_k,
        min_p=asked.min_p,
        presence_penalty=asked.presence_penalty,
        frequency_penalty=asked.frequency_penalty,
        logit_bias=tuple(sorted(asked.logit_bias.items())),
        repetition_penalty=repetition_penalty,
    )


def _eos_token_ids(request: pb.GenerateRequest, vocab_size: int) -> frozenset[int]:
    token_ids = frozenset(request.eos_token_ids)
    if request.ignore_eos or request.min_tokens:
        check_vocabulary(token_ids, vocab_size)
        require(len(token_ids) < vocab_size, "eos_token_ids", "are all there are; nothing else can be chosen")
    return token_ids


def _stop_token_sequences(request: pb.GenerateRequest, vocab_size: int) -> tuple[tuple[int, ...], ...]:
    sequences = tuple(tuple(sequence.token_ids) for sequence in request.stop_token_sequences)
    name = "stop_token_sequences"
    require(len(sequences) <= MAX_STOP_SEQUENCES, name, f"must be at most {MAX_STOP_SEQUENCES}")
    for sequence in sequences:
        is_length_possible = 1 <= len(sequence) <= MAX_STOP_SEQUENCE_TOKENS
        require(is_length_possible, name, f"each must have 1 to {MAX_STOP_SEQUENCE_TOKENS} tokens")
        check_vocabulary(sequence, vocab_size)
    return sequences


def require(is_met: bool, field: str, why: str) -> None:
    """Raises InvalidField."""
    if not is_met:
        raise InvalidField(f"{field}: {why}", metadata={"field": field})
