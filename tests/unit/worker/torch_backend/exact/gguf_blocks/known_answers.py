"""Models of GGUF's blocks, and their transcripts in exact mode: the same on every machine.

`python -m tests.unit.worker.torch_backend.exact.gguf_blocks.known_answers` writes the answers anew, by the reference.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kakeya_worker.conformance.exact_reference import ReferenceSession
from kakeya_worker.conformance.tools.checkpoints import VARIANTS, Variant
from kakeya_worker.conformance.tools.transcript import MAX_POSITIONS, SINK, WINDOW, Transcript, transcript
from tests import gguf_checkpoint
from tests.unit.worker.torch_backend.exact.gguf_blocks.blocks_model import BlocksModel

PATH = Path(__file__).with_name("bits.json")
KV_DTYPES = ("bfloat16", "float32")
_QWEN3 = next(variant for variant in VARIANTS if variant.name == "qwen3")


def _variant(name: str, **config: Any) -> Variant:
    return Variant(name, {**_QWEN3.config, "max_position_embeddings": MAX_POSITIONS, **config})


_WIDE = {
    "hidden_size": 256,
    "intermediate_size": 768,  # three blocks of 256: of two the order would not show
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
}
_NARROW = {
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 32,
}
MODELS: Mapping[str, tuple[Variant, str, Mapping[str, str]]] = {
    "q4_k_m": (_variant("q4_k_m", **_WIDE), "Q4_K", {"v_proj": "Q6_K", "down_proj": "Q6_K", "embed_tokens": "Q6_K"}),
    "q5_k": (_variant("q5_k", **_WIDE), "Q5_K", {"o_proj": "F16", "embed_tokens": "Q8_0", "k_proj": "Q4_K"}),
    "q4_0": (_variant("q4_0", **_NARROW), "Q4_0", {"v_proj": "Q5_1", "down_proj": "Q8_0", "embed_tokens": "Q5_0"}),
    "q4_1": (_variant("q4_1", **_NARROW), "Q4_1", {"o_proj": "Q5_0", "up_proj": "Q5_1"}),
}
"""By name: the variant, the type of its matrices, and of some of them."""


def write(name: str, directory: Path) -> Path:
    """A model as a GGUF file."""
    variant, kind, others = MODELS[name]
    return gguf_checkpoint.write(directory / f"{name}.gguf", variant.config, variant.tensors(), kind, others=others)


def read(name: str, kv_dtype: str) -> Transcript:
    """The committed answer."""
    answers: dict[str, dict[str, Transcript]] = json.loads(PATH.read_text())
    return answers[kv_dtype][name]


def answer(name: str, kv_dtype: str) -> Transcript:
    """What the reference says."""
    variant = MODELS[name][0]
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        model = BlocksModel(variant.write(place / "checkpoint"), write(name, place), kv_dtype)
        return transcript(ReferenceSession(model, SINK, WINDOW), variant)


if __name__ == "__main__":
    found = {kv_dtype: {name: answer(name, kv_dtype) for name in MODELS} for kv_dtype in KV_DTYPES}
    PATH.write_text(json.dumps(found, indent=2) + "\n")
