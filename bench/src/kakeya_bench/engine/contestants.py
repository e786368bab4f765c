"""Who takes part, and how a contestant is loaded, filled and measured in a process of its own."""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kakeya_bench.engine.plan import Case, Plan
from kakeya_bench.rivals.process import OwnProcess, own_process

_SAMPLE_SECONDS = 0.01
INT8, BFLOAT16, TRANSFORMERS, LLAMA = "Kakeya int8", "Kakeya bfloat16", "transformers", "llama.cpp"
INT8_KV, LLAMA_Q8_KV = "Kakeya int8, int8 KV", "llama.cpp, q8_0 KV"
FAR = (INT8, INT8_KV, LLAMA, LLAMA_Q8_KV)
"""Those that take part in the far window."""
READ = "memory read"
Fields = dict[str, Any]


@contextmanager
def watched(pid: int) -> Iterator[dict[str, int | None]]:
    """Of what happens inside, the peaks of a process are in the document at the end; None where Linux is not there.

    peak_rss_bytes is resident memory, with what is mapped of files; peak_anonymous_bytes is resident memory of its own,
    looked at a hundred times a second.
    """
    found: dict[str, int | None] = {}
    seen, is_over = [_status_bytes(pid, "RssAnon")], threading.Event()

    def watch() -> None:
        while not is_over.wait(_SAMPLE_SECONDS):
            seen.append(_status_bytes(pid, "RssAnon"))

    _forget_peak(pid)
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join()
    found["peak_rss_bytes"] = _status_bytes(pid, "VmHWM")
    found["peak_anonymous_bytes"] = max((each for each in seen if each is not None), default=None)


def _status_bytes(pid: int, field: str) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:")), None)


def _forget_peak(pid: int) -> None:
    """So that VmHWM is the peak from now on."""
    reset = Path(f"/proc/{pid}/clear_refs")
    if reset.exists():
        reset.write_text("5")


@dataclass(frozen=True)
class Entrant:
    """How a contestant is started.

    Attributes:
        name: in reports.
        module: of this room; what it calls `contestant` has `load`, `open` and `measure`.
        loading: arguments of its `load`.
        opening: arguments of its `open`.
        files: that it loads.
        packages: where it finds some that are not installed here.
    """

    name: str
    module: str
    loading: Mapping[str, Any]
    opening: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[Path] = ()
    packages: Path | None = None

    @contextmanager
    def running(self) -> Iterator["Contestant"]:
        """In a process that has loaded nothing yet."""
        with own_process(self.packages) as process:
            yield Contestant(self, process)


class Contestant:
    """An engine that holds one model, in its process. Raises CallFailed from every method."""

    def __init__(self, entrant: Entrant, process: OwnProcess) -> None:
        self._entrant, self._process = entrant, process

    def load(self) -> Fields:
        """Loads the model and computes the logits after one token, so that nothing is left to be read later.

        Returns `seconds` that this took, imports aside, the memory until then, and what else is known of the engine.
        """
        with watched(self._process.pid) as memory:
            facts: Fields = self._ask("load", **self._entrant.loading)
        return {**facts, **memory}

    def open(self, cases: Sequence[Case], **more: Any) -> Fields:
        """Makes full sessions for the cases of a window, in place of those that are open; what is known of them."""
        facts: Fields = self._ask("open", cases=cases, **{**self._entrant.opening, **more})
        return facts

    def measure(self, case: Case, num_times: int) -> list[float]:
        """Seconds of each decode step, or of each prefill.

        A decode step that is not timed goes before, for the caches still hold what another contestant worked with.
        """
        seconds: list[float] = self._ask("measure", case=case, num_times=num_times)
        return seconds

    def serving_memory(self, case: Case, num_times: int) -> Fields:
        """While it does that."""
        with watched(self._process.pid) as memory:
            self.measure(case, num_times)
        return dict(memory)

    def _ask(self, what: str, **arguments: Any) -> Any:
        return self._process.call(f"{__package__}.{self._entrant.module}:contestant.{what}", **arguments)


def engines(checkpoint: Path, gguf: Path, plan: Plan, cache_directory: Path, llama_packages: Path) -> list[Entrant]:
    """Those that hold the model, in the order of reports.

    Args:
        cache_directory: of Kakeya's int8 weights.
        llama_packages: where llama.cpp's binding is.
    """
    weights, threads = [checkpoint / "model.safetensors"], {"num_threads": plan.num_threads}
    common = {"model": str(checkpoint), **threads}
    kakeya, chunk = {**common, "cache_directory": cache_directory}, {"chunk": plan.chunk}
    llama = {"model": str(gguf), **threads}
    return [
        Entrant(INT8, "kakeya", {**kakeya, "weights": "int8"}, chunk, weights),
        Entrant(INT8_KV, "kakeya", {**kakeya, "weights": "int8", "kv_dtype": "int8"}, chunk, weights),
        Entrant(BFLOAT16, "kakeya", {**kakeya, "weights": "bfloat16"}, chunk, weights),
        Entrant(TRANSFORMERS, "transformers", {**common, "dtype": "bfloat16"}, {}, weights),
        Entrant(LLAMA, "llama_cpp", {**llama, "kv_dtype": "f16"}, {}, [gguf], llama_packages),
        Entrant(LLAMA_Q8_KV, "llama_cpp", {**llama, "kv_dtype": "q8_0"}, {}, [gguf], llama_packages),
    ]


def cold_load(entrant: Entrant) -> Fields:
    """`load` in a process that ends: the system was asked to read the files from disk, and nothing is converted yet."""
    for path in entrant.files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with entrant.running() as contestant:
        return contestant.load()
