"""Every file is opened, and what it says of its model and tokenizer is read."""

import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import ClassVar

from kakeya_shared.gguf.gguf_error import GgufError
from kakeya_shared.gguf.gguf_file import GgufFile
from kakeya_shared.gguf.tokenizer.tokenizer_json import tokenizer_of
from kakeya_shared.settings.service import setting
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models import families
from kakeya_worker.models.gguf import gguf_config, tensor_names
from tests.soak.fuzz_gguf.mutants import mutant, originals
from tests.soak.progress import Progress
from tests.soak.proof import SeededProof
from tests.soak.report import Report, Tally

_MOST_SECONDS = 1.0
_FIXED_BYTES = 1 << 17
"""What objects of Python take, however small a file is: some hundred keys, tensors and frames."""


class FuzzGguf(SeededProof):
    """Files that are nearly GGUF files: flipped bits, borders of lengths and counts, cuts, pieces of others. Exits with
    1 when one ends in anything but a model or one clear error, takes memory beyond twice its size while it is opened,
    or takes more than a second.
    """

    SEED: ClassVar = "FUZZ_GGUF_SEED"
    model_config = SeededProof.named("fuzz-gguf")

    files: int = setting(100_000, "how many files", unit="files", reason="some minutes", ge=1)

    def prove(self, directory: Path, progress: Progress) -> Report:
        """In this process: a crash would be seen."""
        tally, random, whole = Tally(), Random(self.seed), originals()
        late: list[str] = []
        progress.begin(self.files, "files", lambda: tally.num_counted, lambda: tally.num_violations)
        began, slowest, most = time.monotonic(), 0.0, 0
        for number in range(self.files):
            kind, content = mutant(random, whole)
            # A name of its own: what is mapped of the one before may still be there.
            path = directory / f"{number % 2}.gguf"
            path.unlink(missing_ok=True)
            path.write_bytes(content)
            case = _Case(path, len(content))
            case.read()
            tally.count(case.ended, case.reason, kind)
            slowest, most = max(slowest, case.seconds), max(most, case.bytes_used)
            for fault in case.faults:
                tally.violate(f"{fault}: file {number} of seed {self.seed} ({kind})", kind=fault[:40])
            if case.seconds > _MOST_SECONDS:
                late.append(f"file {number} of seed {self.seed} ({kind}) took {case.seconds:.1f} s")
        facts = {
            "seed": self.seed,
            "files": tally.num_counted,
            "seconds": round(time.monotonic() - began, 1),
            "slowest_seconds": round(slowest, 3),
            "most_bytes": most,
            "by_end": {what: sum(ends.values()) for what, ends in tally.outcomes.items()},
            "errors": tally.by_outcome(),
        }
        return Report(facts, tally.violations, tally.num_violations, late)


class _Case:
    """One file.

    Attributes:
        ended: "opened", "refused" or "failed".
        reason: in which words, without what is the file's own.
        faults: what must not be.
        bytes_used: while it was opened, at the most.
    """

    def __init__(self, path: Path, num_bytes: int) -> None:
        self._path = path
        self._num_bytes = num_bytes
        self.ended, self.reason, self.seconds, self.bytes_used = "opened", "", 0.0, 0
        self.faults: list[str] = []

    def read(self) -> None:
        began = time.monotonic()
        tracemalloc.start()
        try:
            file = self._opened()
            self.bytes_used = tracemalloc.get_traced_memory()[1]
            if self.bytes_used > 2 * self._num_bytes + _FIXED_BYTES:
                self.faults.append(f"it took {self.bytes_used:,} bytes for a file of {self._num_bytes:,}")
            tracemalloc.stop()
            for read in (_config, _names, _tokenizer):
                if file is not None:
                    self._told(partial(read, file))
        finally:
            tracemalloc.stop()
        self.seconds = time.monotonic() - began

    def _opened(self) -> GgufFile | None:
        found: list[GgufFile] = []
        self._told(lambda: found.append(GgufFile(self._path)))
        return found[0] if found else None

    def _told(self, read: Callable[[], object]) -> None:
        try:
            read()
        except (GgufError, ModelRefused) as error:
            self.ended = "refused"
            self.reason = _words(str(error))
            if "\n" in str(error) or not str(error):
                self.faults.append(f"an error of several lines, or of none: {str(error)!r:.200}")
        except Exception as error:  # whatever it is, it should not have come
            self.ended = "failed"
            self.faults.append(f"{type(error).__name__}: {error!s:.200}")


def _config(file: GgufFile) -> None:
    families.parse(gguf_config.config_of(file))


def _names(file: GgufFile) -> None:
    tensor_names.hub_names(file.tensors)


def _tokenizer(file: GgufFile) -> None:
    tokenizer_of(file.metadata)


def _words(error: str) -> str:
    """The beginning of an error, without paths, names and numbers."""
    said = error.partition("cannot be read: ")[2] or error
    kept = [word for word in said.split() if word.isalpha()]
    return " ".join(kept[:5])
