"""The logits of every position, by llama.cpp; run by the Python of llama.cpp's environment.

    python llama_cpp_logits.py GGUF TOKENS.npy LOGITS.npy [--kv f32]

TOKENS holds integers [sequences, tokens], each sequence a conversation of its own; LOGITS then holds float32
[sequences, tokens, vocab].
"""

import argparse
from pathlib import Path

import llama_cpp  # type: ignore[import-not-found]  # in the benchmark's environment only
import numpy as np

KV_TYPES = {"f16": llama_cpp.GGML_TYPE_F16, "f32": llama_cpp.GGML_TYPE_F32}


def logits(gguf: Path, sequences: np.ndarray, kv_type: int) -> np.ndarray:
    """[sequences, tokens] -> [sequences, tokens, vocab]."""
    num_tokens = sequences.shape[1]
    model = llama_cpp.Llama(str(gguf), n_ctx=num_tokens, logits_all=True, type_k=kv_type, type_v=kv_type, verbose=False)
    by_sequence = []
    for token_ids in sequences:
        model.reset()
        model.eval(token_ids.tolist())
        by_sequence.append(model.scores[:num_tokens].copy())
    return np.stack(by_sequence)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gguf", type=Path)
    parser.add_argument("tokens", type=Path)
    parser.add_argument("logits", type=Path)
    parser.add_argument("--kv", choices=KV_TYPES, default="f16", help="type of K and V (default: f16, as llama.cpp)")
    arguments = parser.parse_args()
    np.save(arguments.logits, logits(arguments.gguf, np.load(arguments.tokens), KV_TYPES[arguments.kv]))


if __name__ == "__main__":
    main()
