"""transformers as a contestant: its model and its cache, stepped greedily."""

import copy
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from torch import Tensor
from transformers import DynamicCache

from kakeya_bench.engine.contestants import Fields
from kakeya_bench.engine.plan import DECODE, Case
from kakeya_bench.rivals.greedy_decoder import GreedyDecoder


class Transformers:
    """A model, and the K and V of a session that others are copied from."""

    def load(self, model: str, dtype: str, num_threads: int) -> Fields:
        """See `Contestant`."""
        began = time.perf_counter()
        self._decoder = GreedyDecoder(Path(model), dtype, num_threads)
        self._decoder.step(self._tokens(1, 1), self._decoder.empty_cache())
        return {
            "seconds": time.perf_counter() - began,
            "version": transformers.__version__,
            "torch": torch.__version__,
            "weights": dtype,
            "kv_dtype": dtype,
        }

    def open(self, cases: Sequence[Case]) -> Fields:
        """See `Contestant`."""
        num_tokens = max(case.num_held_tokens for case in cases)
        self._held = self._decoder.empty_cache()
        self._decoder.step(self._tokens(1, num_tokens), self._held)
        return {"held_tokens": num_tokens}

    def measure(self, case: Case, num_times: int) -> list[float]:
        """See `Contestant`; the sessions of a decode burst grow by a token with each step."""
        if case.kind == DECODE:
            sessions = self._sessions(case)
            return [self._step(case, sessions) for _ in range(1 + num_times)][1:]
        return [self._step(case, self._sessions(case)) for _ in range(num_times)]

    def _step(self, case: Case, sessions: DynamicCache) -> float:
        tokens = self._tokens(case.num_sessions, case.num_new_tokens)
        began = time.perf_counter()
        self._decoder.step(tokens, sessions)
        return time.perf_counter() - began

    def _sessions(self, case: Case) -> DynamicCache:
        """What a case's sessions hold before."""
        if not case.num_held_tokens:
            return self._decoder.empty_cache()
        cache = copy.deepcopy(self._held)
        cache.crop(case.num_held_tokens - cache.get_seq_length())
        cache.batch_repeat_interleave(case.num_sessions)
        return cache

    def _tokens(self, num_sessions: int, num_tokens: int) -> Tensor:
        return torch.randint(self._decoder.vocab_size, (num_sessions, num_tokens))


contestant = Transformers()
