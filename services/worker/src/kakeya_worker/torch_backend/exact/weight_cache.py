"""Quantized weights on disk, so that a model is converted once and mapped ever after."""

import ctypes
import errno
import glob
import os
import shutil
import time
from collections.abc import Callable, Iterable
from math import prod
from pathlib import Path
from typing import NamedTuple

import structlog
import torch

from kakeya_shared.process.whole_file import replacing
from kakeya_worker.torch_backend.exact.matrices import Matrix, Packed, packed
from kakeya_worker.torch_backend.exact.packed_file import FORMAT, DamagedFile, PackedFileWriter, drop_pages, read_packed
from kakeya_worker.torch_backend.file_lock import FileLock

_log = structlog.get_logger()
_REPORT_SECONDS = 5.0
INT8_BITS, GGUF_BITS = 8.25, 8.5  # 64 weights of int8 share two bytes of a scale; 32 of Q8_0, the largest of GGUF's


class Conversion(NamedTuple):
    """How a matrix [out_features, in_features] is made of a checkpoint."""

    name: str
    shape: tuple[int, int]
    quantize: Callable[[], Matrix]


class WeightCache:
    """The packed matrices of one model in one file, which all workers of a host map; a damaged one is written anew.

    One worker converts while the others wait for it. Where the file cannot be written, matrices stay in this process's
    own memory.

    Args:
        path: of the file, less what names its format; None to keep nothing.
        num_weights: of the whole model, about.
        weight_bits: the most that a weight takes, its share of scales included.
    """

    def __init__(self, path: Path | None, num_weights: int, weight_bits: float = INT8_BITS) -> None:
        self._path = path
        self._num_weights = num_weights
        self._num_bytes = int(num_weights * weight_bits) // 8
        self._found: dict[str, Packed] = {}
        self._progress = _Progress(num_weights)

    def fill(self, conversions: Iterable[Conversion]) -> None:
        """Maps the file; before that, where there is none yet, converts a model's matrices into it.

        Not being able to write is no error.
        """
        if self._path is None:
            return
        file = self._path.with_name(f"{self._path.name}.{FORMAT}.safetensors")
        before = _identity(file)
        self._found = _read(file)
        if self._found:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self._path.with_name(f"{self._path.name}.lock"))
            if _identity(file) != before:
                self._found = _read(file)
            if not self._found:
                self._convert(self._path, file, conversions)
            del lock
        except OSError as error:
            _log.warning("converted weights are not kept; the next start converts them again", error=str(error))
            self._progress = _Progress(self._num_weights)

    def matrix(self, conversion: Conversion) -> Packed:
        """Out of the file, or else converted into this process's memory."""
        found = self._found.get(conversion.name)
        if found is not None and (found.out_features, found.in_features) == conversion.shape:
            return found
        made = packed(conversion.quantize())
        self._progress.add(conversion)
        return made

    def finish(self) -> None:
        """Returns memory that conversion has left free to the system."""
        if self._progress.has_begun:
            _trim_heap()

    def _convert(self, path: Path, file: Path, conversions: Iterable[Conversion]) -> None:
        """Raises OSError, and leaves nothing then."""
        if shutil.disk_usage(path.parent).free < self._num_bytes:
            raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} for {self._num_bytes} bytes", str(path.parent))
        with replacing(file) as temporary:
            writer = PackedFileWriter(temporary)
            for conversion in conversions:
                writer.add(conversion.name, conversion.quantize())
                self._progress.add(conversion)
            writer.finish()
        _log.info("converted weights kept for the next start", path=str(file))
        for older in path.parent.glob(f"{glob.escape(path.name)}.*safetensors"):
            if older != file:  # who has mapped it keeps it
                older.unlink(missing_ok=True)
        drop_pages(file)
        self._found = _read(file)


class _Progress:
    """A log line now and then while conversion takes long."""

    def __init__(self, num_weights: int) -> None:
        self._num_weights = num_weights
        self._num_matrices = self._num_converted = 0
        self._reported = time.monotonic()

    @property
    def has_begun(self) -> bool:
        return self._num_matrices > 0

    def add(self, conversion: Conversion) -> None:
        self._num_matrices += 1
        self._num_converted += prod(conversion.shape)
        if time.monotonic() - self._reported > _REPORT_SECONDS:
            self._reported = time.monotonic()
            _log.info(
                "converting weights",
                matrices=self._num_matrices,
                weights=self._num_converted,
                of_weights=self._num_weights,
            )


def _identity(file: Path) -> tuple[int, int, int] | None:
    """Tells a file from one that takes its place; None where there is none."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _read(file: Path) -> dict[str, Packed]:
    """What is kept; nothing where it is missing or damaged."""
    try:
        return read_packed(file, torch.get_num_threads())
    except FileNotFoundError:
        return {}
    except (OSError, DamagedFile) as error:
        _log.warning("damaged weights are converted again", path=str(file), error=str(error))
        return {}


def _trim_heap() -> None:
    """Returns to the system what conversion has left free, 200 MB and more, which glibc alone would keep."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
