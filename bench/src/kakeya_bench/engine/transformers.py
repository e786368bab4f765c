"""`generate` of transformers as a contestant."""

import copy
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache

from kakeya_bench.engine.contestants import Fields
from kakeya_bench.engine.plan import DECODE, Case


class Clock:
    """A streamer of `generate` that notes when it gets tokens; the first are the prompt."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def put(self, value: Tensor) -> None:
        self.moments.append(time.perf_counter())

    def end(self) -> None:
        """Nothing was held back."""


class Transformers:
    """A model, and the K and V of a session that others are copied from."""

    def load(self, model: str, dtype: str, num_threads: int) -> Fields:
        """See `Contestant`."""
        began = time.perf_counter()
        torch.set_num_threads(num_threads)
        self._model: Any = AutoModelForCausalLM.from_pretrained(
            model, dtype=getattr(torch, dtype), attn_implementation="sdpa"
        ).eval()
        self._generate(self._tokens(1, 1), self._empty_cache(), 1)
        return {
            "seconds": time.perf_counter() - began,
            "version": transformers.__version__,
            "torch": torch.__version__,
            "weights": dtype,
            "kv_dtype": dtype,
        }

    @torch.inference_mode()
    def open(self, cases: Sequence[Case]) -> Fields:
        """See `Contestant`."""
        num_tokens = max(case.num_held_tokens for case in cases)
        self._held = self._empty_cache()
        self._model(self._tokens(1, num_tokens), past_key_values=self._held, logits_to_keep=1)
        return {"held_tokens": num_tokens}

    def measure(self, case: Case, num_times: int) -> list[float]:
        """See `Contestant`; the sessions of a decode burst grow by a token with each step."""
        if case.kind == DECODE:
            # The first token is due to the prompt's last one, and not timed.
            moments = self._generate(self._prompt(case), self._sessions(case), 1 + num_times)[1:]
            return [after - before for before, after in pairwise(moments)]
        return [self._prefill(case) for _ in range(num_times)]

    def _prefill(self, case: Case) -> float:
        prompt, cache = self._prompt(case), self._sessions(case)
        began = time.perf_counter()
        return self._generate(prompt, cache, 1)[-1] - began

    def _generate(self, token_ids: Tensor, cache: DynamicCache, num_tokens: int) -> list[float]:
        """The moments of a `Clock`; token_ids [sessions, tokens], of which the cache holds the first."""
        clock = Clock()
        self._model.generate(
            token_ids,
            attention_mask=torch.ones_like(token_ids),
            past_key_values=cache,
            max_new_tokens=num_tokens,
            min_new_tokens=num_tokens,
            do_sample=False,
            pad_token_id=0,
            streamer=clock,
        )
        return clock.moments

    def _prompt(self, case: Case) -> Tensor:
        return self._tokens(case.num_sessions, case.num_held_tokens + case.num_new_tokens)

    def _sessions(self, case: Case) -> DynamicCache:
        """What a case's sessions hold before."""
        if not case.num_held_tokens:
            return self._empty_cache()
        cache = copy.deepcopy(self._held)
        cache.crop(case.num_held_tokens - cache.get_seq_length())
        cache.batch_repeat_interleave(case.num_sessions)
        return cache

    def _empty_cache(self) -> DynamicCache:
        return DynamicCache(config=self._model.config)

    def _tokens(self, num_sessions: int, num_tokens: int) -> Tensor:
        return torch.randint(self._model.config.vocab_size, (num_sessions, num_tokens))


contestant = Transformers()
