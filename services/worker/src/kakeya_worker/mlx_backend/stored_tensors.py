"""What a checkpoint's files hold, before mlx-lm loads it."""

from collections.abc import Collection
from pathlib import Path
from typing import cast

import mlx.core as mx
from safetensors import SafetensorError, safe_open

from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.output_head import EMBEDDING, HEAD, plain_names

_PATTERN = "model*.safetensors"  # mlx-lm's


class StoredTensors:
    """The tensors of a checkpoint's language model, by plain names, in the files that mlx-lm loads.

    Raises ModelRefused where files are missing or damaged: MLX reads them late, and until then takes one that is cut
    off for a whole one.

    Attributes:
        files: sorted by name.
    """

    def __init__(self, directory: Path) -> None:
        self.files = sorted(directory.glob(_PATTERN))
        if not self.files:
            raise ModelRefused(f"{directory} holds no model.safetensors")
        self._file_of: dict[str, Path] = {}
        for file in self.files:
            try:
                with safe_open(file, framework="numpy") as tensors:
                    self._file_of |= dict.fromkeys(tensors.keys(), file)
            except (OSError, SafetensorError) as error:
                raise ModelRefused(f"{file} cannot be read: {error}") from error
        self._stored_name = plain_names(self._file_of)

    @property
    def names(self) -> Collection[str]:
        """Of all tensors."""
        return self._stored_name.keys()

    @property
    def dtype(self) -> str:
        """Of the embedding, as config.json would say it: "float32", "bfloat16" or another; "" where there is none."""
        weight = self._of(EMBEDDING).get("weight")
        return "" if weight is None else str(weight.dtype).removeprefix("mlx.core.")

    def head_is_embedding(self) -> bool:
        """Whether the output head holds the same numbers, in the same type and quantized the same way."""
        head, embedding = self._of(HEAD), self._of(EMBEDDING)
        return head.keys() == embedding.keys() and all(
            head[part].dtype == embedding[part].dtype and bool(mx.array_equal(head[part], embedding[part]))
            for part in head
        )

    def _of(self, module: str) -> dict[str, mx.array]:
        """A module's tensors by the last part of their names: `weight`, and `scales` where it is quantized."""
        found = {}
        for name, stored in self._stored_name.items():
            if name.rpartition(".")[0] == module:
                # Lazily: of a file's tensors only this one is read.
                tensors = cast("dict[str, mx.array]", mx.load(str(self._file_of[stored])))
                found[name.rpartition(".")[2]] = tensors[stored]
        return found
