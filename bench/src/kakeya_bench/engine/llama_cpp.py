"""llama.cpp as a contestant; imported where its binding is found.

Each case runs as llama.cpp does it best: before it counts, all `Settings` that can matter are tried. The sessions of a
step are in one llama_batch.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import llama_cpp  # type: ignore[import-not-found]  # in an environment of its own

from kakeya_bench.engine.contestants import Fields
from kakeya_bench.engine.llama_context import Context, LlamaCppRefused, Settings, candidates
from kakeya_bench.engine.plan import DECODE, Case

_REPACKED = "CPU_REPACK model buffer size"  # llama.cpp's log, where it repacks any weights
_NUM_TRIES = {DECODE: 4}
_NUM_FINALISTS = 2
_NUM_LOG_LINES = 20


class LlamaCpp:
    """A model, and a context for each case."""

    def load(self, model: str, num_threads: int, kv_dtype: str) -> Fields:
        """See `Contestant`.

        Args:
            kv_dtype: f16 or q8_0.
        """
        began = time.perf_counter()
        self._path, self._num_threads, self._kv_dtype = model.encode(), num_threads, kv_dtype
        self._log: list[str] = []
        self._on_log = llama_cpp.llama_log_callback(lambda _, text, __: self._log.append(text.decode(errors="replace")))
        llama_cpp.llama_log_set(self._on_log, None)
        llama_cpp.llama_backend_init()
        self._models: dict[bool, Any] = {}
        self._contexts: dict[Case, Context] = {}
        self._states: dict[bool, bytes] = {}
        first = Context(self._model(repacked=True), Case(DECODE, 1, window=1), Settings(kv_dtype), num_threads)
        first.measure(1)
        first.close()
        return {
            "seconds": time.perf_counter() - began,
            "version": llama_cpp.__version__,
            "system": llama_cpp.llama_print_system_info().decode().strip(),
            "repacks": self._repacks,
            "weights": "Q8_0",
            "kv_dtype": kv_dtype,
        }

    def open(self, cases: Sequence[Case], settings: dict[str, Fields] | None = None) -> Fields:
        """See `Contestant`.

        Args:
            settings: of each case by name; without, the best are found.
        """
        while self._contexts:
            self._contexts.popitem()[1].close()
        tried: dict[str, list[Fields]] = {}
        for case in cases:
            if settings is None:
                chosen, tried[case.name] = self._best(case)
            else:
                chosen = Settings(**settings[case.name])
            self._contexts[case] = self._filled(case, chosen)
        self._states.clear()
        best = {case.name: asdict(context.settings) for case, context in self._contexts.items()}
        return {"settings": best, "tried": tried}

    def measure(self, case: Case, num_times: int) -> list[float]:
        """See `Contestant`."""
        return self._contexts[case].measure(num_times)

    def _best(self, case: Case) -> tuple[Settings, list[Fields]]:
        """The settings that are fastest, and what each took; the best are tried twice, since machines are noisy."""
        seconds = {settings: self._try(case, settings) for settings in candidates(case, self._repacks, self._kv_dtype)}
        for settings in sorted(seconds, key=seconds.__getitem__)[:_NUM_FINALISTS]:
            seconds[settings] = min(seconds[settings], self._try(case, settings))
        best = min(seconds, key=seconds.__getitem__)
        return best, [{**asdict(settings), "seconds": took} for settings, took in seconds.items()]

    def _try(self, case: Case, settings: Settings) -> float:
        context = self._filled(case, settings)
        try:
            return min(context.measure(_NUM_TRIES.get(case.kind, 1)))
        finally:
            context.close()

    def _filled(self, case: Case, settings: Settings) -> Context:
        context = Context(self._model(settings.repacked), case, settings, self._num_threads)
        if case.num_held_tokens:
            context.fill(self._state(case.window, settings.flash_attention))
        return context

    def _state(self, window: int, flash_attention: bool) -> bytes:
        """Of a session that holds as much as any case's; made once, since a prefill takes seconds."""
        if flash_attention not in self._states:
            alone = Settings(self._kv_dtype, flash_attention)
            one = Context(self._model(alone.repacked), Case(DECODE, 1, window), alone, self._num_threads)
            one.prefill()
            self._states[flash_attention] = one.state()
            one.close()
        return self._states[flash_attention]

    @property
    def _repacks(self) -> bool:
        """Whether there is another order for these weights on this CPU."""
        return any(_REPACKED in line for line in self._log)

    def _model(self, repacked: bool) -> Any:
        if repacked not in self._models:
            parameters = llama_cpp.llama_model_default_params()
            parameters.use_extra_bufts = repacked
            self._models[repacked] = llama_cpp.llama_model_load_from_file(self._path, parameters)
            if not self._models[repacked]:
                raise LlamaCppRefused("llama_model_load_from_file:\n" + "".join(self._log[-_NUM_LOG_LINES:]))
        return self._models[repacked]


contestant = LlamaCpp()
