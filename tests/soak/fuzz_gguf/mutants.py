"""Files that are nearly GGUF files."""

import struct
from collections.abc import Callable
from random import Random
from typing import Any

from tests.gguf_bytes import F32, I32, LIST, U8, U64, Tensor, Typed, gguf

# Lengths, counts and offsets are what is believed most easily.
_EDGES = (0, 1, 2, 3, 31, 32, 33, 255, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1)
_WORDS = ("a", "b", "ab", "abc", "▁", "▁a", "<unk>", "<s>", "</s>", "<|im_end|>", "<0x0A>")
_Q4_0, _Q4_K = 2, 12


def originals() -> list[bytes]:
    """Small models of several architectures, with tokenizers of every kind, whole."""
    return [
        _model("llama", _pieces("llama")),
        _model("qwen3", _pairs()),
        _model("qwen2", _pieces("t5")),
        gguf(_pairs()),
    ]


def mutant(random: Random, files: list[bytes]) -> tuple[str, bytes]:
    """How it was made, and a file that one to four faults were put into."""
    content = bytearray(random.choice(files))
    kinds = []
    for _ in range(random.choice((1, 1, 2, 4))):
        kind = random.choice(tuple(_FAULTS))
        kinds.append(kind)
        _FAULTS[kind](random, content, files)
    return "+".join(kinds), bytes(content)


def _flip(random: Random, content: bytearray, files: list[bytes]) -> None:
    if content:
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)


def _edge(random: Random, content: bytearray, files: list[bytes]) -> None:
    width = random.choice((4, 8))
    place = random.randrange(max(1, len(content) - width))
    content[place : place + width] = struct.pack("<Q", random.choice(_EDGES))[:width]


def _number(random: Random, content: bytearray, files: list[bytes]) -> None:
    """Of those that count keys and tensors, and so stand in front of all."""
    place = random.choice((4, 8, 16))
    content[place : place + 8] = struct.pack("<Q", random.choice((*_EDGES, random.randrange(64))))


def _cut(random: Random, content: bytearray, files: list[bytes]) -> None:
    del content[random.randrange(len(content) + 1) :]


def _leave_out(random: Random, content: bytearray, files: list[bytes]) -> None:
    place = random.randrange(len(content) + 1)
    del content[place : place + random.choice((1, 4, 8, 40))]


def _put_in(random: Random, content: bytearray, files: list[bytes]) -> None:
    place = random.randrange(len(content) + 1)
    content[place:place] = random.randbytes(random.choice((1, 4, 8, 40)))


def _splice(random: Random, content: bytearray, files: list[bytes]) -> None:
    """What stands in another one."""
    other = random.choice(files)
    start, place = random.randrange(len(other)), random.randrange(len(content) + 1)
    content[place : place + 200] = other[start : start + random.randrange(400)]


_FAULTS: dict[str, Callable[[Random, bytearray, list[bytes]], None]] = {
    "flip": _flip,
    "edge": _edge,
    "number": _number,
    "cut": _cut,
    "leave out": _leave_out,
    "put in": _put_in,
    "splice": _splice,
}


def _pairs() -> dict[str, Any]:
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": list(_WORDS),
        "tokenizer.ggml.token_type": [1, 1, 1, 1, 1, 1, 2, 3, 3, 3, 4],
        "tokenizer.ggml.merges": ["a b", "ab c"],
        "tokenizer.ggml.eos_token_id": 9,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": "{{ messages }}",
    }


def _pieces(model: str) -> dict[str, Any]:
    return {
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": list(_WORDS),
        "tokenizer.ggml.scores": Typed([-float(place) for place in range(len(_WORDS))], LIST, F32),
        "tokenizer.ggml.token_type": Typed([1, 1, 1, 1, 1, 1, 2, 3, 3, 3, 6], LIST, I32),
        "tokenizer.ggml.unknown_token_id": 6,
        "tokenizer.ggml.precompiled_charsmap": Typed(list(range(40)), LIST, U8),
    }


def _model(architecture: str, tokenizer: dict[str, Any]) -> bytes:
    said = {
        "general.architecture": architecture,
        "general.alignment": 32,
        f"{architecture}.block_count": 1,
        f"{architecture}.context_length": Typed(512, U64),
        f"{architecture}.embedding_length": 32,
        f"{architecture}.attention.head_count": 2,
        f"{architecture}.attention.head_count_kv": 1,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{architecture}.rope.freq_base": 10_000.0,
        f"{architecture}.rope.scaling.type": "linear",
        f"{architecture}.rope.scaling.factor": 2.0,
    }
    tensors = [
        Tensor("token_embd.weight", [32, len(_WORDS)], _Q4_0, bytes(18 * len(_WORDS))),
        Tensor("output_norm.weight", [32], 0, bytes(128)),
        Tensor("blk.0.attn_q.weight", [32, 32], _Q4_0, bytes(18 * 32)),
        Tensor("blk.0.attn_k.weight", [32, 16], _Q4_0, bytes(18 * 16)),
        Tensor("blk.0.ffn_gate.weight", [32, 64], 1, bytes(2 * 32 * 64)),
        Tensor("blk.0.ffn_down.weight", [256, 2], _Q4_K, bytes(2 * 144)),
        Tensor("rope_freqs.weight", [8], 0, struct.pack("<8f", *[1.0] * 8)),
    ]
    return gguf(said | tokenizer, tensors)
