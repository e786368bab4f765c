"""A tokenizer for models of random weights, written without a library: bytes, a few words, two special tokens."""

import json
from pathlib import Path

WORDS = ("yes", "no", "maybe", "true", "false", "null", '{"', '":', '","', '"}', "},", ", ", "12", "345", "  ", "\n\n")
END, START = "<|end|>", "<|start|>"
NUM_BYTES = 256
NUM_TOKENS = NUM_BYTES + len(WORDS) + 2


def write_tokenizer(directory: Path, num_bytes: int = NUM_BYTES) -> Path:
    """Writes tokenizer.json, whose first ids are so many bytes, then the words, then END and START; returns it.

    The format is that of Hugging Face's tokenizers: a BPE without merges over the letters that stand for bytes.
    """
    letters = _letters()
    words = ["".join(letters[byte] for byte in word.encode()) for word in WORDS]
    vocabulary = {piece: token_id for token_id, piece in enumerate((*letters[:num_bytes], *words, END, START))}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [{"id": vocabulary[each], "content": each, "special": True, **flags} for each in (END, START)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    path = directory / "tokenizer.json"
    path.write_text(json.dumps(tokenizer))
    return path


def token_text(token_ids: list[int], num_bytes: int = NUM_BYTES) -> str:
    """The text of tokens; the special ones have none. What is no UTF-8 is replaced."""
    pieces = [*(bytes([byte]) for byte in range(num_bytes)), *(word.encode() for word in WORDS), b"", b""]
    return b"".join(pieces[token_id] for token_id in token_ids).decode(errors="replace")


def _letters() -> list[str]:
    """For each byte the letter that stands for it: itself where it prints, else one that no text has (as of GPT-2)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(hidden)) for byte in range(256)]
