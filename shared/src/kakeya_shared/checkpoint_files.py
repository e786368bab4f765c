"""Whether a checkpoint's directory is whole, without any library that could load it."""

import json
from collections.abc import Sequence
from pathlib import Path

_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_LENGTH_BYTES = 8  # a safetensors file begins with the length of its header, little-endian


def flaw(directory: Path, documents: Sequence[str]) -> str:
    """What is amiss with a checkpoint; "" where nothing is.

    Args:
        documents: names of the JSON files that it must hold.
    """
    sharded = (directory / _INDEX).is_file()
    for name in (*documents, _INDEX) if sharded else documents:
        try:
            json.loads((directory / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            return f"{name} cannot be read: {error}"
    try:
        shards = _shards(directory / _INDEX) if sharded else [_WEIGHTS]
    except (KeyError, TypeError, AttributeError) as error:
        return f"{_INDEX} does not say which files hold the weights: {error!r}"
    flaws = (_weights_flaw(directory / name) for name in shards)
    return next(filter(None, flaws), "")


def _shards(index: Path) -> list[str]:
    """The files over which the weights are divided."""
    return sorted({str(name) for name in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()})


def _weights_flaw(path: Path) -> str:
    try:
        actual, due = path.stat().st_size, _due_bytes(path)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return f"{path.name} cannot be read: {error}"
    return "" if actual == due else f"{path.name} has {actual:,} bytes and should have {due:,}"


def _due_bytes(path: Path) -> int:
    """The size of a file of weights, by its own header."""
    with path.open("rb") as file:
        header_bytes = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        header = json.loads(file.read(min(header_bytes, path.stat().st_size)))
    if not isinstance(header, dict):
        raise ValueError("its header is no JSON object")
    ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
    return int(_LENGTH_BYTES + header_bytes + max(ends, default=0))
