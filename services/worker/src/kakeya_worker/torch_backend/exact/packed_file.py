"""Files of packed matrices, made to be mapped: safetensors whose tensors all begin at multiples of 64 bytes.

A matrix is one region: of values, scales and exponents, the last padded to 64 bytes, or of GGUF's blocks. It is written
as soon as it is there, so that converting a model holds one matrix at a time. Mapped memory belongs to the file, and
all who map it share it.
"""

import contextlib
import hashlib
import json
import mmap
import os
import warnings
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from kakeya_worker.models.gguf.block_integers import BLOCK_TYPES
from kakeya_worker.torch_backend.exact.gguf_blocks.packing import PackedBlocks, pack_panels
from kakeya_worker.torch_backend.exact.gguf_blocks.packing import packed_shape as blocks_shape
from kakeya_worker.torch_backend.exact.matrices import Matrix, Packed
from kakeya_worker.torch_backend.exact.packing import (
    PackedMatrix,
    pack_scales,
    pack_values,
    packed_shape,
    scales_shape,
)
from kakeya_worker.torch_backend.weights import BlockMatrix

FORMAT = "kakeya-packed-2"
_HEADER_BYTES = 1 << 20  # reserved for the JSON, which is known at the end; a thousand matrices fit
_ALIGNMENT = 64
_TYPES = {"values": "U8", "scales": "BF16", "exponents": "I8"}


class DamagedFile(Exception):
    """A file of packed matrices is not what was written."""


@dataclass(frozen=True)
class _Region:
    """Where a matrix lies.

    Attributes:
        start: bytes from the beginning of the file.
        sha256: of the title and the bytes; empty while they are being written.
        blocks: the type of GGUF's that its weights have; "" for int8 in groups.
    """

    start: int
    out_features: int
    in_features: int
    sha256: str = ""
    blocks: str = ""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the tensors, in their order."""
        size = self.out_features, self.in_features
        if self.blocks:
            return {"values": blocks_shape(BLOCK_TYPES[self.blocks], *size)}
        exponents = -(-self.in_features // _ALIGNMENT) * _ALIGNMENT
        return {"values": packed_shape(*size), "scales": scales_shape(*size), "exponents": (exponents,)}

    def spans(self) -> dict[str, tuple[int, int]]:
        """From which byte of the file to which the tensors go."""
        sizes = {"values": 1, "scales": 2, "exponents": 1}
        at, spans = self.start, {}
        for field, shape in self.shapes().items():
            spans[field] = (at, at + prod(shape) * sizes[field])
            at = spans[field][1]
        return spans

    @property
    def end(self) -> int:
        return max(end for _, end in self.spans().values())

    def title(self, name: str) -> bytes:
        """What the digest covers beside the bytes."""
        return " ".join([name, str(self.out_features), str(self.in_features), *self.blocks.split()]).encode() + b"\n"

    def matrix(self, mapping: mmap.mmap) -> Packed:
        """The views into a mapping of the file."""
        spans, shapes = self.spans(), self.shapes()
        values = _view(mapping, torch.uint8, spans["values"][0], shapes["values"])
        if self.blocks:
            return PackedBlocks(BLOCK_TYPES[self.blocks], values, self.out_features, self.in_features)
        return PackedMatrix(
            values=values,
            scales=_view(mapping, torch.bfloat16, spans["scales"][0], shapes["scales"]),
            exponents=_view(mapping, torch.int8, spans["exponents"][0], (self.in_features,)),
            out_features=self.out_features,
        )


class PackedFileWriter:
    """Writes a file matrix by matrix; it can be read after `finish`, and is closed with this object. Raises OSError.

    Args:
        path: a new file.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        weakref.finalize(self, os.close, self._descriptor)
        self._regions: dict[str, _Region] = {}
        self._end = _HEADER_BYTES

    def add(self, name: str, matrix: Matrix) -> None:
        """Writes a matrix."""
        region = _Region(self._end, *matrix.shape, blocks=matrix.kind.name if isinstance(matrix, BlockMatrix) else "")
        digest = hashlib.sha256(region.title(name))
        os.lseek(self._descriptor, region.start, os.SEEK_SET)
        for tensor in _region_tensors(matrix):
            data = tensor.contiguous().view(torch.uint8).flatten().numpy().data
            digest.update(data)
            self._write(data)
        self._regions[name] = replace(region, sha256=digest.hexdigest())
        self._end = region.end

    def finish(self) -> None:
        """Writes the header."""
        entries: dict[str, Any] = {
            f"{name}/{field}": {
                "dtype": _TYPES[field],
                "shape": region.shapes()[field],
                "data_offsets": [byte - _HEADER_BYTES for byte in span],
            }
            for name, region in self._regions.items()
            for field, span in region.spans().items()
        }
        matrices = {name: asdict(region) for name, region in self._regions.items()}
        entries["__metadata__"] = {"format": FORMAT, "matrices": json.dumps(matrices)}
        num_bytes = _HEADER_BYTES - 8
        header = json.dumps(entries).encode().ljust(num_bytes)
        if len(header) > num_bytes:
            raise OSError(f"the header of {len(matrices)} matrices takes more than {num_bytes} bytes")
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self._write(memoryview(num_bytes.to_bytes(8, "little") + header))

    def _write(self, data: memoryview) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]


def drop_pages(path: Path) -> None:
    """Lets memory go that holds a file as it was written, in small pages; the next to map it gets large ones.

    What is not on the disk yet stays, as does what a process has mapped. Raises OSError.
    """
    if hasattr(os, "posix_fadvise"):  # not on every system
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_packed(path: Path, num_threads: int) -> dict[str, Packed]:
    """Maps the matrices of a file, once all digests fit.

    Raises:
        DamagedFile: they do not, or it is no such file.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        try:
            mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
            _advise(mapping)
            regions = _read_header(mapping)
            with ThreadPoolExecutor(num_threads) as pool:  # hashing lets go of the interpreter
                fits = list(pool.map(lambda each: _fits(mapping, *each), regions.items()))
            if not all(fits):
                raise DamagedFile(f"{fits.count(False)} of {len(fits)} matrices are damaged")
            return {name: region.matrix(mapping) for name, region in regions.items()}
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise DamagedFile(f"not a file of packed matrices: {error}") from error


def _read_header(mapping: mmap.mmap) -> dict[str, _Region]:
    num_bytes = int.from_bytes(mapping[:8], "little")
    if num_bytes > _HEADER_BYTES:
        raise ValueError(f"its header has {num_bytes} bytes")
    metadata = json.loads(mapping[8 : 8 + num_bytes])["__metadata__"]
    if metadata["format"] != FORMAT:
        raise ValueError(f"its format is {metadata['format']!r}")
    return {name: _Region(**region) for name, region in json.loads(metadata["matrices"]).items()}


def _fits(mapping: mmap.mmap, name: str, region: _Region) -> bool:
    """Whether the bytes are those that were written; a region beyond the end has none."""
    digest = hashlib.sha256(region.title(name))
    digest.update(memoryview(mapping)[region.start : region.end])
    return digest.hexdigest() == region.sha256


def _region_tensors(matrix: Matrix) -> Iterator[Tensor]:
    """A matrix as it is written, with no more of it packed at a time than a few panels."""
    if isinstance(matrix, BlockMatrix):
        yield from pack_panels(matrix)
        return
    yield from pack_values(matrix.values)
    yield pack_scales(matrix.scales)
    yield pad(matrix.exponents, (0, -matrix.exponents.shape[0] % _ALIGNMENT))


def _advise(mapping: mmap.mmap) -> None:
    """Asks for huge pages, which a decode step reads by a tenth faster; else for all of the file to be read at once.

    Not both: what is read ahead of its use lies in small pages.
    """
    for advice in ("MADV_HUGEPAGE", "MADV_WILLNEED"):  # neither is on every system
        if hasattr(mmap, advice):
            with contextlib.suppress(OSError):  # a kernel without huge pages
                mapping.madvise(getattr(mmap, advice))
                return


def _view(mapping: mmap.mmap, dtype: torch.dtype, offset: int, shape: tuple[int, ...]) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it may not be written to: nobody does
        return torch.frombuffer(mapping, dtype=dtype, count=prod(shape), offset=offset).view(shape)
