"""The logits of every position, by llama.cpp; imported where its binding is found."""

from pathlib import Path

import llama_cpp  # type: ignore[import-not-found]  # in an environment of its own
import numpy as np

_KV_TYPES = {"f16": llama_cpp.GGML_TYPE_F16, "f32": llama_cpp.GGML_TYPE_F32}


def logits(gguf: Path, sequences: np.ndarray, kv_type: str) -> np.ndarray:
    """[sequences, tokens] -> [sequences, tokens, vocab]; `kv_type` is "f16" or "f32"."""
    num_tokens, kv = sequences.shape[1], _KV_TYPES[kv_type]
    model = llama_cpp.Llama(str(gguf), n_ctx=num_tokens, logits_all=True, type_k=kv, type_v=kv, verbose=False)
    by_sequence = []
    for token_ids in sequences:
        model.reset()
        model.eval(token_ids.tolist())
        by_sequence.append(model.scores[:num_tokens].copy())
    return np.stack(by_sequence)
