"""Sessions in a context of llama.cpp, as one case has them; imported where its binding is found."""

import ctypes
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import llama_cpp  # type: ignore[import-not-found]  # in an environment of its own

from kakeya_bench.engine.plan import DECODE, Case

_CONTEXT_MULTIPLE = 256
_BATCH = 512  # tokens of a prefill's llama_batch
_UBATCHES = (128, 512)
_COUNT_BYTES = 4  # in a state
_KV_TYPES = {"f16": llama_cpp.GGML_TYPE_F16, "q8_0": llama_cpp.GGML_TYPE_Q8_0}


class LlamaCppRefused(Exception):
    """A function of llama.cpp failed; the message says which."""


@dataclass(frozen=True)
class Settings:
    """How llama.cpp may run a case.

    Attributes:
        kv_dtype: of K and V, as llama.cpp names it.
        flash_attention: K and V meet in one operator.
        unified: one buffer for the K and V of all sessions, else one for each.
        ubatch: the most tokens that run at once.
        repacked: weights in the order that its kernels like best here, where they have one.
    """

    kv_dtype: str = "f16"
    flash_attention: bool = True
    unified: bool = True
    ubatch: int = _UBATCHES[-1]
    repacked: bool = True


def candidates(case: Case, repacks: bool, kv_dtype: str) -> Iterator[Settings]:
    """All that can make a difference to a case.

    Args:
        repacks: llama.cpp has another order for these weights here.
        kv_dtype: of all of them. Quantized values need flash attention.
    """
    attentions = (True, False) if kv_dtype == "f16" else (True,)
    layouts = (True, False) if case.num_sessions > 1 else (True,)
    ubatches = _UBATCHES if case.num_new_tokens > min(_UBATCHES) else _UBATCHES[-1:]
    for values in product(attentions, layouts, ubatches, (True, False) if repacks else (True,)):
        yield Settings(kv_dtype, *values)


class Context:
    """A case's sessions, which are empty at first. Raises LlamaCppRefused: from every method."""

    def __init__(self, model: Any, case: Case, settings: Settings, num_threads: int) -> None:
        self.case, self.settings = case, settings
        num_tokens = case.num_held_tokens + case.num_new_tokens
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = case.num_sessions * -(-num_tokens // _CONTEXT_MULTIPLE) * _CONTEXT_MULTIPLE
        parameters.n_seq_max = case.num_sessions
        parameters.n_batch = _BATCH
        parameters.n_ubatch = settings.ubatch
        parameters.n_threads = parameters.n_threads_batch = num_threads
        parameters.type_k = parameters.type_v = _KV_TYPES[settings.kv_dtype]
        parameters.flash_attn_type = int(settings.flash_attention)
        parameters.kv_unified = settings.unified
        self._context = llama_cpp.llama_init_from_model(model, parameters)
        if not self._context:
            raise LlamaCppRefused(f"llama_init_from_model for {case.name} with {settings}")
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))

    def close(self) -> None:
        """Frees K and V."""
        llama_cpp.llama_free(self._context)

    def prefill(self) -> None:
        """Gives the first session what it holds before the case."""
        num_tokens = self.case.num_held_tokens
        for start in range(0, num_tokens, _BATCH):
            with self._batch(range(1), range(start, min(start + _BATCH, num_tokens))) as batch:
                self._decode(batch)

    def state(self) -> bytes:
        """The first session's K and V."""
        size = llama_cpp.llama_state_seq_get_size(self._context, 0)
        content = (ctypes.c_uint8 * size)()
        if llama_cpp.llama_state_seq_get_data(self._context, content, size, 0) != size:
            raise LlamaCppRefused("llama_state_seq_get_data")
        return bytes(content)

    def fill(self, state: bytes) -> None:
        """Gives every session K and V of its own, equal to those of a state, as much as it holds before the case.

        Args:
            state: of a context for one session that holds as much or more, of the same `flash_attention`.
        """
        content = self._for_all_buffers(state)
        array = (ctypes.c_uint8 * len(content)).from_buffer(content)
        for session in range(self.case.num_sessions):
            if not llama_cpp.llama_state_seq_set_data(self._context, array, len(content), session):
                raise LlamaCppRefused(f"llama_state_seq_set_data for {self.case.name} with {self.settings}")
        self._forget()
        lasts = {llama_cpp.llama_memory_seq_pos_max(self._memory, each) for each in range(self.case.num_sessions)}
        if lasts != {self.case.num_held_tokens - 1}:
            raise LlamaCppRefused(f"sessions of {self.case.name} end at {lasts} with {self.settings}")

    def measure(self, num_times: int) -> list[float]:
        """Seconds of each; a decode step that is not timed goes before."""
        num_warm = 1 if self.case.kind == DECODE else 0
        sessions, start = range(self.case.num_sessions), self.case.num_held_tokens
        seconds = []
        with self._batch(sessions, range(start, start + self.case.num_new_tokens)) as batch:
            for _ in range(num_warm + num_times):
                began = time.perf_counter()
                self._decode(batch)
                seconds.append(time.perf_counter() - began)
                self._forget()
        return seconds[num_warm:]

    def _decode(self, batch: Any) -> None:
        status = llama_cpp.llama_decode(self._context, batch)
        if status:
            raise LlamaCppRefused(f"llama_decode: status {status} for {self.case.name} with {self.settings}")
        llama_cpp.llama_synchronize(self._context)

    def _forget(self) -> None:
        """What the sessions did not hold before the case."""
        for session in range(self.case.num_sessions):
            llama_cpp.llama_memory_seq_rm(self._memory, session, self.case.num_held_tokens, -1)

    @contextmanager
    def _batch(self, sessions: range, positions: range) -> Iterator[Any]:
        """Random tokens for some sessions; the logits after the last one of each are asked for."""
        entries = [(session, position) for session in sessions for position in positions]
        batch = llama_cpp.llama_batch_init(len(entries), 0, 1)
        batch.n_tokens = len(entries)
        for index, (session, position) in enumerate(entries):
            batch.token[index] = random.randrange(self._vocab_size)
            batch.pos[index] = position
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = session
            batch.logits[index] = position == positions[-1]
        try:
            yield batch
        finally:
            llama_cpp.llama_batch_free(batch)

    def _for_all_buffers(self, state: bytes) -> bytearray:
        """A state as this context takes it.

        It begins with the number of buffers, and has for each a count of tokens and that many tokens: a session's in
        one of them, and none in the others. The beginning is what this context, still empty, says itself.
        """
        num_buffers = 1 if self.settings.unified else self.case.num_sessions
        empty = self.state()
        beginning = empty[: len(empty) - _COUNT_BYTES * num_buffers]
        return bytearray(beginning + state[len(beginning) :] + bytes(_COUNT_BYTES * (num_buffers - 1)))
