"""Tokenizers as GGUF files hold them, made of those that the Hub or SentencePiece has."""

import json
from pathlib import Path
from typing import Any

import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2

from tests.gguf_bytes import F32, I32, LIST, U8, Typed, gguf

_CONTROL, _USER_DEFINED = 3, 4


def of_hub(directory: Path, pre: str, **others: Any) -> dict[str, Any]:
    """What a file says of a tokenizer of byte pairs.

    Args:
        directory: with tokenizer.json and tokenizer_config.json.
        pre: the name of how it cuts.
        others: keys behind `tokenizer.ggml.`.
    """
    tokenizer = json.loads((directory / "tokenizer.json").read_text())
    config = json.loads((directory / "tokenizer_config.json").read_text())
    ids: dict[str, int] = dict(tokenizer["model"]["vocab"])
    kinds = dict.fromkeys(ids.values(), 1)
    for token in tokenizer["added_tokens"]:
        ids[token["content"]] = token["id"]
        kinds[token["id"]] = _CONTROL if token["special"] else _USER_DEFINED
    said: dict[str, Any] = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": sorted(ids, key=lambda token: ids[token]),
        "tokenizer.ggml.token_type": [kinds[id_] for id_ in sorted(kinds)],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in tokenizer["model"]["merges"]],
    }
    for part in ("bos", "eos"):
        if config.get(f"{part}_token"):
            said[f"tokenizer.ggml.{part}_token_id"] = ids[config[f"{part}_token"]]
    return said | {f"tokenizer.ggml.{key}": value for key, value in others.items()}


def trained_pieces(directory: Path, texts: list[str], **options: Any) -> spm.SentencePieceProcessor:
    """SentencePiece's own tokenizer, trained on texts."""
    (directory / "texts.txt").write_text("\n".join(text.replace("\n", " ") for text in texts if text.strip()))
    prefix = str(directory / "pieces")
    spm.SentencePieceTrainer.train(
        input=str(directory / "texts.txt"), model_prefix=prefix, minloglevel=2, num_threads=1, **options
    )
    return spm.SentencePieceProcessor(model_file=f"{prefix}.model")


def of_pieces(pieces: spm.SentencePieceProcessor, model: str, **others: Any) -> dict[str, Any]:
    """What a file says of it.

    Args:
        model: "llama" for one of byte pairs, "t5" for a unigram one.
        others: keys behind `tokenizer.ggml.`.
    """
    proto = sentencepiece_model_pb2.ModelProto.FromString(  # type: ignore[attr-defined]  # protobuf makes it at run time
        pieces.serialized_model_proto()
    )
    said: dict[str, Any] = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": [piece.piece for piece in proto.pieces],
        "tokenizer.ggml.scores": Typed([piece.score for piece in proto.pieces], LIST, F32),
        "tokenizer.ggml.token_type": Typed([piece.type for piece in proto.pieces], LIST, I32),
        "tokenizer.ggml.unknown_token_id": proto.trainer_spec.unk_id,
    }
    charsmap = proto.normalizer_spec.precompiled_charsmap
    if charsmap:
        said["tokenizer.ggml.precompiled_charsmap"] = Typed(list(charsmap), LIST, U8)
    return said | {f"tokenizer.ggml.{key}": value for key, value in others.items()}


def write(path: Path, said: dict[str, Any]) -> Path:
    """A file without tensors; returns `path`."""
    path.write_bytes(gguf({key: value for key, value in said.items() if value is not None}))
    return path
