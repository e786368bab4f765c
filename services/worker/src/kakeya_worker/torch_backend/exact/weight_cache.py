"""Quantized weights on disk, so that a model is converted once and mapped ever after."""

import ctypes
import errno
import glob
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import structlog
import torch

from kakeya_worker.engine.verifier import ModelRefused
from kakeya_worker.torch_backend.exact.packed_file import FORMAT, DamagedFile, PackedFileWriter, read_packed
from kakeya_worker.torch_backend.exact.packing import PackedMatrix, pack
from kakeya_worker.torch_backend.exact.quantization import QuantizedMatrix
from kakeya_worker.torch_backend.file_lock import FileLock
from kakeya_worker.torch_backend.replacing import Replacement

_log = structlog.get_logger()
_REPORT_SECONDS = 5.0


class WeightCache:
    """The packed matrices of one model in one file, which all workers of a host map; a damaged one is written anew.

    One worker converts while the others wait for it. Where the file cannot be written, matrices stay in this process's
    own memory. Where it was written and the disk then fails, pages in use may be lost: ModelRefused.

    Args:
        path: of the file, less what names its format; None to keep nothing.
        num_weights: of the whole model, about.
    """

    def __init__(self, path: Path | None, num_weights: int) -> None:
        self._found: dict[str, PackedMatrix] = {}
        self._conversion: _Conversion | None = None
        self._progress = _Progress(num_weights)
        if path is not None:
            self._open(path, num_weights)

    def matrix(self, name: str, shape: tuple[int, int], quantize: Callable[[], QuantizedMatrix]) -> PackedMatrix:
        """A matrix [out_features, in_features]: found, or else converted and kept."""
        found = self._found.get(name)
        if found is not None and (found.out_features, found.in_features) == shape:
            return found
        packed = self._keep(name, quantize())
        self._progress.add(packed)
        return packed

    def finish(self) -> None:
        """Puts the file in its place, with all that was converted. Not being able to is no error."""
        if self._conversion is not None:
            try:
                self._conversion.finish()
            except OSError as error:
                self._give_up(self._conversion, error)
            self._conversion = None
        if self._progress.has_begun:
            _trim_heap()

    def _open(self, path: Path, num_weights: int) -> None:
        file = path.with_name(f"{path.name}.{FORMAT}.safetensors")
        before = _identity(file)
        self._found = _read(file)
        if self._found:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(path.with_name(f"{path.name}.lock"))
            if _identity(file) != before:
                self._found = _read(file)
            if not self._found:
                self._conversion = _Conversion(path, file, lock, num_weights)
        except OSError as error:
            _warn(error)

    def _keep(self, name: str, matrix: QuantizedMatrix) -> PackedMatrix:
        if self._conversion is not None:
            try:
                return self._conversion.writer.add(name, matrix)
            except OSError as error:
                self._give_up(self._conversion, error)
        return pack(matrix)

    def _give_up(self, conversion: "_Conversion", error: OSError) -> None:
        """Goes on without the file, which loses its name and lives on in what is mapped of it."""
        _warn(error)
        self._conversion = None
        try:
            conversion.writer.sync()
        except OSError as loss:
            raise ModelRefused(f"int8 weights may be lost on their way to the disk of the cache: {loss}") from loss


class _Conversion:
    """The file to be, and the right to write it; both are given up with this object. Raises OSError."""

    def __init__(self, path: Path, file: Path, lock: FileLock, num_weights: int) -> None:
        if shutil.disk_usage(path.parent).free < num_weights:
            raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} for {num_weights} bytes", str(path.parent))
        self._path = path
        self._file = file
        self._lock = lock
        self._replacement = Replacement(file)
        self.writer = PackedFileWriter(self._replacement.temporary)

    def finish(self) -> None:
        self.writer.finish()
        self._replacement.commit()
        _log.info("int8 weights kept for the next start", path=str(self._file))
        for older in self._path.parent.glob(f"{glob.escape(self._path.name)}.*safetensors"):
            if older != self._file:  # who has mapped it keeps it
                older.unlink(missing_ok=True)


class _Progress:
    """A log line now and then while conversion takes long."""

    def __init__(self, num_weights: int) -> None:
        self._num_weights = num_weights
        self._num_matrices = self._num_converted = 0
        self._reported = time.monotonic()

    @property
    def has_begun(self) -> bool:
        return self._num_matrices > 0

    def add(self, packed: PackedMatrix) -> None:
        self._num_matrices += 1
        self._num_converted += packed.out_features * packed.in_features
        if time.monotonic() - self._reported > _REPORT_SECONDS:
            self._reported = time.monotonic()
            _log.info(
                "converting weights to int8",
                matrices=self._num_matrices,
                bytes=self._num_converted,
                of_bytes=self._num_weights,
            )


def _identity(file: Path) -> tuple[int, int, int] | None:
    """Tells a file from one that takes its place; None where there is none."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _read(file: Path) -> dict[str, PackedMatrix]:
    """What is kept; nothing where it is missing or damaged."""
    try:
        return read_packed(file, torch.get_num_threads())
    except FileNotFoundError:
        return {}
    except (OSError, DamagedFile) as error:
        _log.warning("damaged int8 weights are converted again", path=str(file), error=str(error))
        return {}


def _trim_heap() -> None:
    """Returns to the system what conversion has left free, 200 MB and more, which glibc alone would keep."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _warn(error: OSError) -> None:
    _log.warning("int8 weights are not kept; the next start converts them again", error=str(error))
