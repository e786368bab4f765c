"""Snapshots as files: safetensors with a checksum, read without trusting them."""

import json
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from kakeya_shared.errors import SnapshotRefused
from kakeya_worker.engine.raw_numbers import RawNumbers
from kakeya_worker.engine.snapshot import Snapshot
from kakeya_worker.engine.verifier import LaneContents

FORMAT = "kakeya-snapshot-2"
_MAX_HEADER_BYTES = 1 << 20
_TYPES: dict[str, np.dtype[Any]] = {
    "BF16": np.dtype("<u2"),
    "F32": np.dtype("<u4"),
    "I64": np.dtype("<i8"),
    "U32": np.dtype("<u4"),
}
_INTEGERS = ("sink", "window", "start", "length")
# Of K in the file; see `made_memory` for what a worse place costs.
_ALIGNMENT_BYTES = 64


def encode(snapshot: Snapshot) -> bytes:
    """A file's content: little-endian, K and V [layers, kv_heads, tokens, head_dim] in the order of the history."""
    return b"".join(pieces(snapshot))


def pieces(snapshot: Snapshot) -> list[bytes | memoryview]:
    """A file's content, not joined: that is a copy of all of it, and holds up all threads."""
    contents = snapshot.contents
    data = {  # each is aligned to its numbers
        "positions": ("I64", snapshot.positions),
        "keys": (_float_type(contents.keys), contents.keys),
        "values": (_float_type(contents.values), contents.values),
        "token_ids": ("U32", snapshot.token_ids),
        "final_hidden": (_float_type(contents.final_hidden), contents.final_hidden),
    }
    arrays = {name: np.ascontiguousarray(array, dtype=_TYPES[dtype]) for name, (dtype, array) in data.items()}
    facts = {
        "format": FORMAT,
        "fingerprint": snapshot.fingerprint,
        "model_digest": snapshot.model_digest,
        "refuses_overflow": json.dumps(snapshot.refuses_overflow),
        "history_digest": snapshot.history_digest.hex(),
        **{name: str(getattr(snapshot, name)) for name in _INTEGERS},
    }
    entries: dict[str, Any] = {"__metadata__": {**facts, "xxh3_128": _checksum(facts, arrays)}}
    at = 0
    for name, array in arrays.items():
        entries[name] = {"dtype": data[name][0], "shape": array.shape, "data_offsets": (at, at + array.nbytes)}
        at += array.nbytes
    header = json.dumps(entries).encode()
    header += b" " * (-(8 + len(header) + arrays["positions"].nbytes) % _ALIGNMENT_BYTES)
    return [len(header).to_bytes(8, "little"), header, *(_bytes(array) for array in arrays.values())]


def decode(content: bytes | bytearray | memoryview) -> Snapshot:
    """What `encode` made a file of; its arrays are views of the content.

    Raises:
        SnapshotRefused: it is damaged, or no snapshot of this format.
    """
    try:
        facts, data = _read(content)
        if facts["format"] != FORMAT:
            raise SnapshotRefused(f"its format is {facts['format']!r}, not {FORMAT!r}")
        if facts.pop("xxh3_128") != _checksum(facts, data):
            raise SnapshotRefused("its checksum does not fit: it is damaged")
        return Snapshot(
            fingerprint=facts["fingerprint"],
            model_digest=facts.get("model_digest", ""),  # of an older worker: for its own fingerprint only
            refuses_overflow=bool(json.loads(facts["refuses_overflow"])),
            history_digest=bytes.fromhex(facts["history_digest"]),
            positions=data["positions"],
            token_ids=data["token_ids"].astype(np.int64),
            contents=LaneContents(data["keys"], data["values"], data["final_hidden"]),
            **{name: int(facts[name]) for name in _INTEGERS},
        )
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise SnapshotRefused(f"it is no snapshot: {error!r}") from error


def _read(content: bytes | bytearray | memoryview) -> tuple[dict[str, str], dict[str, NDArray[Any]]]:
    num_bytes = int.from_bytes(content[:8], "little")
    if num_bytes > min(_MAX_HEADER_BYTES, len(content)):
        raise ValueError(f"its header has {num_bytes} bytes")
    header = json.loads(bytes(content[8 : 8 + num_bytes]))
    facts = dict(header.pop("__metadata__"))
    body = memoryview(content)[8 + num_bytes :]
    return facts, {name: _array(body, **entry) for name, entry in header.items()}


def _array(body: memoryview, dtype: str, shape: list[int], data_offsets: list[int]) -> NDArray[Any]:
    start, end = data_offsets
    array: NDArray[Any] = np.frombuffer(body[start:end], dtype=_TYPES[dtype]).reshape(shape)
    return array


def _checksum(facts: dict[str, str], data: dict[str, NDArray[Any]]) -> str:
    """XXH3, 128 bits, of all facts, and of all tensors with their names and shapes.

    It is against damage: who can write into the store can write snapshots.
    """
    told = xxhash.xxh3_128(json.dumps(facts, sort_keys=True).encode())
    for name in sorted(data):
        told.update(f"{name} {data[name].shape}".encode())
        told.update(_bytes(data[name]))
    return told.hexdigest()


def _bytes(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _float_type(numbers: RawNumbers) -> str:
    return "BF16" if numbers.dtype.itemsize == 2 else "F32"
