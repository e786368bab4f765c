"""llama.cpp in `make bench-engine`; run by the Python of its own environment.

Each case runs as llama.cpp does it best: before it counts, all `Settings` that can matter are tried. The sessions of a
step are in one llama_batch.
"""

import time
from dataclasses import asdict, replace
from typing import Any

import llama_cpp  # type: ignore[import-not-found]  # in the benchmark's environment only

from tests.benchmarks.engine_case import DECODE, Case
from tests.benchmarks.engine_contestant import Fields, serve
from tests.benchmarks.engine_llama_cpp_context import Context, LlamaCppRefused, Settings, candidates

_REPACKED = "CPU_REPACK model buffer size"  # llama.cpp's log, where it repacks any weights
_NUM_TRIES = {DECODE: 4}
_NUM_FINALISTS = 2
_NUM_LOG_LINES = 20


class LlamaCpp:
    """A model, and a context for each case."""

    def load(self, model: str, num_threads: int) -> Fields:
        """See `Contestant`."""
        began = time.perf_counter()
        self._path, self._num_threads = model.encode(), num_threads
        self._log: list[str] = []
        self._on_log = llama_cpp.llama_log_callback(lambda _, text, __: self._log.append(text.decode(errors="replace")))
        llama_cpp.llama_log_set(self._on_log, None)
        llama_cpp.llama_backend_init()
        self._models: dict[bool, Any] = {}
        self._contexts: dict[Case, Context] = {}
        self._states: dict[bool, bytes] = {}
        first = Context(self._model(repacked=True), Case(DECODE, 1, window=1), Settings(), num_threads)
        first.measure(1)
        first.close()
        return {
            "seconds": time.perf_counter() - began,
            "version": llama_cpp.__version__,
            "system": llama_cpp.llama_print_system_info().decode().strip(),
            "repacks": self._repacks,
            "weights": "Q8_0",
            "kv_dtype": "float16",
        }

    def open(self, window: int, cases: list[Fields], settings: dict[str, Fields] | None = None) -> Fields:
        """See `Contestant`.

        Args:
            settings: of each case by name; without, the best are found.
        """
        while self._contexts:
            self._contexts.popitem()[1].close()
        tried: dict[str, list[Fields]] = {}
        for case in map(Case.of, cases):
            if settings is None:
                chosen, tried[case.name] = self._best(case, window)
            else:
                chosen = Settings(**settings[case.name])
            self._contexts[case] = self._filled(case, chosen, window)
        self._states.clear()
        best = {case.name: asdict(context.settings) for case, context in self._contexts.items()}
        return {"settings": best, "tried": tried}

    def measure(self, case: Case, num_times: int) -> list[float]:
        """See `Contestant`."""
        return self._contexts[case].measure(num_times)

    def _best(self, case: Case, window: int) -> tuple[Settings, list[Fields]]:
        """The settings that are fastest, and what each took; the best are tried twice, since machines are noisy."""
        seconds = {settings: self._try(case, settings, window) for settings in candidates(case, self._repacks)}
        for settings in sorted(seconds, key=seconds.__getitem__)[:_NUM_FINALISTS]:
            seconds[settings] = min(seconds[settings], self._try(case, settings, window))
        best = min(seconds, key=seconds.__getitem__)
        return best, [{**asdict(settings), "seconds": took} for settings, took in seconds.items()]

    def _try(self, case: Case, settings: Settings, window: int) -> float:
        context = self._filled(case, settings, window)
        try:
            return min(context.measure(_NUM_TRIES.get(case.kind, 1)))
        finally:
            context.close()

    def _filled(self, case: Case, settings: Settings, window: int) -> Context:
        context = Context(self._model(settings.repacked), case, settings, self._num_threads)
        if case.num_held_tokens:
            context.fill(self._state(window, settings))
        return context

    def _state(self, window: int, settings: Settings) -> bytes:
        """Of a session that holds as much as any case's; made once, since a prefill takes seconds."""
        if settings.flash_attention not in self._states:
            longest = Case(DECODE, 1, window)
            alone = replace(Settings(), flash_attention=settings.flash_attention)
            one = Context(self._model(alone.repacked), longest, alone, self._num_threads)
            one.prefill()
            self._states[settings.flash_attention] = one.state()
            one.close()
        return self._states[settings.flash_attention]

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


if __name__ == "__main__":
    serve(LlamaCpp())
