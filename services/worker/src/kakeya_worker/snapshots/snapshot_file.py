"""Snapshots as files: safetensors with checksums, read without trusting them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from kakeya_shared.errors.tree import SnapshotRefused
from kakeya_worker.engine.seams.raw_numbers import RawNumbers
from kakeya_worker.engine.seams.verifier import LaneContents, Memory
from kakeya_worker.engine.snapshots.made_memory import made_memory
from kakeya_worker.engine.snapshots.snapshot import Snapshot, TakenSnapshot
from kakeya_worker.snapshots.file_tensor import TYPES, FileTensor, read, size
from kakeya_worker.snapshots.snapshot_store import ENCRYPTED, OpenFile, SnapshotStoreError

FORMAT = "kakeya-snapshot-3"
_MAX_HEADER_BYTES = 1 << 20
_LENGTH_BYTES = 8
_INTEGERS = ("sink", "window", "start", "length")
# As routers count histories, which their store can add up exactly.
_MAX_LENGTH = 1 << 53
# What a file has much of, and the facts that tell its checksums.
_CHECKSUMS = {"keys": "keys_xxh3_128", "values": "values_xxh3_128"}
# What is read, and checked with the header, when it is opened.
_LITTLE = ("positions", "token_ids", "final_hidden")
# Of K in the file; see `made_memory` for what a worse place costs.
_ALIGNMENT_BYTES = 64
# Of K and V at a time, if a layer has no more: enough that what is done for each is nothing, and no memory to speak of.
_PART_BYTES = 4 << 20


def encode(snapshot: TakenSnapshot) -> bytes:
    """A file's content: little-endian, K and V [layers, kv_heads, tokens, head_dim] in the order of the history."""
    return b"".join(pieces(snapshot))


def pieces(snapshot: TakenSnapshot) -> list[bytes | memoryview]:
    """A file's content, not joined: that is a copy of all of it, and holds up all threads."""
    contents = snapshot.contents
    data = {  # each is aligned to its numbers
        "positions": ("I64", snapshot.positions),
        "keys": (_kept_type(contents.keys), contents.keys),
        "values": (_kept_type(contents.values), contents.values),
        "token_ids": ("U32", snapshot.token_ids),
        "final_hidden": (_kept_type(contents.final_hidden), contents.final_hidden),
    }
    arrays = {name: np.ascontiguousarray(array, dtype=TYPES[dtype]) for name, (dtype, array) in data.items()}
    facts = {
        "format": FORMAT,
        "fingerprint": snapshot.fingerprint,
        "model_digest": snapshot.model_digest,
        "refuses_overflow": json.dumps(snapshot.refuses_overflow),
        "history_digest": "",  # older workers want one, of another kind
        **{name: str(getattr(snapshot, name)) for name in _INTEGERS},
        **{fact: xxhash.xxh3_128_hexdigest(_bytes(arrays[name])) for name, fact in _CHECKSUMS.items()},
    }
    entries: dict[str, Any] = {"__metadata__": facts}
    at = 0
    for name, array in arrays.items():
        entries[name] = {"dtype": data[name][0], "shape": array.shape, "data_offsets": (at, at + array.nbytes)}
        at += array.nbytes
    if snapshot.history_digest is not None:
        facts["tokens_digest"] = f"{snapshot.history_digest:016x}"
    facts["xxh3_128"] = _checksum(entries, arrays)
    header = json.dumps(entries).encode()
    header += b" " * (-(_LENGTH_BYTES + len(header) + arrays["positions"].nbytes) % _ALIGNMENT_BYTES)
    return [len(header).to_bytes(_LENGTH_BYTES, "little"), header, *(_bytes(array) for array in arrays.values())]


def is_same(file: OpenFile, pieces: Sequence[bytes | memoryview]) -> bool:
    """Whether a file is what `pieces` made; its header tells the checksums of the rest. Raises SnapshotStoreError."""
    length, header, *_ = pieces
    try:
        if read(file, 0, len(length) + len(header)) != bytes(length) + bytes(header):
            return False
        for _ in opened(file).parts():
            continue
    except (SnapshotRefused, ValueError):
        return False
    return True


@dataclass(frozen=True)
class FileSnapshot(Snapshot):
    """One in a file that is open, whose K and V are read when they are wanted.

    Attributes:
        name: of the file, for messages.
        final_hidden: see `LaneContents`.
    """

    name: str
    final_hidden: RawNumbers
    _file: OpenFile
    _tensors: Mapping[str, FileTensor]
    _checksums: Mapping[str, str]
    _memory: Memory | None

    def parts(self) -> Iterator[LaneContents]:
        """See `Snapshot.parts`. Raises SnapshotStoreError, too."""
        much = {name: self._tensors[name] for name in _CHECKSUMS}
        told = {name: xxhash.xxh3_128() for name in much}
        num_layers = much["keys"].shape[0]
        layer_bytes = sum(tensor.num_bytes for tensor in much.values()) // max(1, num_layers)
        num_at_once = max(1, min(num_layers, _PART_BYTES // max(1, layer_bytes)))
        memory = self._memory
        if memory is None or len(memory) < num_at_once * layer_bytes:
            memory = made_memory(num_at_once * layer_bytes)
        for start in range(0, num_layers, num_at_once):
            layers = self._layers(start, min(num_layers, start + num_at_once), memory)
            for name, array in layers.items():
                told[name].update(_bytes(array))
            yield LaneContents(**layers, final_hidden=self.final_hidden, first_layer=start)
        if {name: each.hexdigest() for name, each in told.items()} != self._checksums:
            raise SnapshotRefused(f"{self.name}: its checksum does not fit: it is damaged")

    def _layers(self, start: int, end: int, memory: Memory) -> dict[str, RawNumbers]:
        found, at = {}, 0
        with _refused(self.name):
            for name in _CHECKSUMS:
                part = self._tensors[name].layers(start, end)
                found[name] = part.read(self._file, memory[at:])
                at += part.num_bytes
        return found


def opened(file: OpenFile, name: str = "the snapshot", memory: Memory | None = None) -> FileSnapshot:
    """What `pieces` made a file of, as long as that is open.

    Args:
        memory: may be used for K and V, if it is large enough.

    Raises:
        SnapshotRefused: it is damaged, or no snapshot of this format.
        SnapshotStoreError: it cannot be read, or is encrypted.
    """
    with _refused(name):
        if ENCRYPTED.startswith(read(file, 0, _LENGTH_BYTES)):
            raise SnapshotStoreError(f"{name}: it is encrypted, and this worker has no --snapshot-key-file")
        header, data = _header(file)
        facts = header["__metadata__"]
        if facts["format"] != FORMAT:
            raise SnapshotRefused(f"{name}: its format is {facts['format']!r}, not {FORMAT!r}")
        tensors = _tensors(header, data)
        little = {each: tensors[each].read(file, np.empty(tensors[each].num_bytes, np.uint8)) for each in _LITTLE}
        if facts.pop("xxh3_128") != _checksum(header, little):
            raise SnapshotRefused(f"{name}: its checksum does not fit: it is damaged")
        _check_shapes(tensors)
        integers = {each: int(facts[each]) for each in _INTEGERS}
        if not 0 <= integers["start"] <= integers["length"] <= _MAX_LENGTH:
            raise ValueError(f"from {integers['start']} to {integers['length']}")
        return FileSnapshot(
            fingerprint=facts["fingerprint"],
            model_digest=facts["model_digest"],
            refuses_overflow=bool(json.loads(facts["refuses_overflow"])),
            history_digest=_digest(facts["tokens_digest"]) if "tokens_digest" in facts else None,
            positions=little["positions"],
            token_ids=little["token_ids"].astype(np.int64),
            name=name,
            final_hidden=little["final_hidden"],
            _file=file,
            _tensors=tensors,
            _checksums={each: facts[fact] for each, fact in _CHECKSUMS.items()},
            _memory=memory,
            **integers,
        )


def _header(file: OpenFile) -> tuple[dict[str, Any], range]:
    """What it says, and where in the file its data is; raises ValueError or SnapshotStoreError."""
    file_bytes = size(file)
    num_bytes = int.from_bytes(read(file, 0, _LENGTH_BYTES), "little")
    if num_bytes > _MAX_HEADER_BYTES:
        raise ValueError(f"its header has {num_bytes} bytes")
    header: dict[str, Any] = json.loads(read(file, _LENGTH_BYTES, num_bytes))
    return header, range(_LENGTH_BYTES + num_bytes, file_bytes)


def _tensors(header: Mapping[str, Any], data: range) -> dict[str, FileTensor]:
    """Those that a snapshot has, and no others, one after the other as the format wants; raises as `FileTensor.of`."""
    tensors = {name: FileTensor.of(data, **entry) for name, entry in header.items() if name != "__metadata__"}
    if tensors.keys() != {*_CHECKSUMS, *_LITTLE}:
        raise ValueError(f"it has the tensors {sorted(tensors)}")
    end = data.start
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.start, tensor.num_bytes)):
        if tensor.start != end:
            raise ValueError(f"a tensor begins at byte {tensor.start}, not at {end}")
        end += tensor.num_bytes
    if end != data.stop:
        raise ValueError(f"it ends at byte {data.stop}, its data at {end}")
    return tensors


def _digest(text: str) -> int:
    """Raises ValueError."""
    digest = int.from_bytes(bytes.fromhex(text), "big")
    if digest >> 64:
        raise ValueError(f"a digest of {len(text)} digits")
    return digest


def _check_shapes(tensors: Mapping[str, FileTensor]) -> None:
    """Raises ValueError."""
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    of_tokens, of_keys = shapes["positions"], shapes["keys"]
    if (
        len(of_tokens) != 1
        or shapes["token_ids"] != of_tokens
        or len(of_keys) != 4
        or of_keys[2:3] != of_tokens
        or shapes["values"][:3] != of_keys[:3]
    ):
        raise ValueError(f"its shapes are {shapes}")


def _checksum(header: Mapping[str, Any], little: Mapping[str, NDArray[Any]]) -> str:
    """XXH3, 128 bits, of the header, which tells the checksums of K and V, and of the other tensors.

    It is against damage: who can write into the store can write snapshots.
    """
    told = xxhash.xxh3_128(json.dumps(header, sort_keys=True).encode())
    for name in _LITTLE:
        told.update(_bytes(little[name]))
    return told.hexdigest()


def _bytes(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _kept_type(numbers: RawNumbers) -> str:
    return {1: "U8", 2: "BF16", 4: "F32"}[numbers.dtype.itemsize]


@contextmanager
def _refused(name: str) -> Iterator[None]:
    """What Python says of content that makes no sense, as SnapshotRefused."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
        raise SnapshotRefused(f"{name}: it is no snapshot: {error!r}") from error
