"""The texts of a model's tokens, as the library needs them: from the tokenizer.json that the checkpoint brings."""

import hashlib
import importlib.metadata
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llguidance import LLTokenizer

from kakeya_shared.contract.features import GRAMMAR_LIBRARY
from kakeya_worker.grammars.grammar import FORM

# A token that no model has and no text is: the library allows it where the grammar accepts. The session says which
# tokens end an answer, and they may be texts, too.
_END = "<|kakeya:end of grammar|>"


class VocabularyError(Exception):
    """There is none that can be used; the message says why."""


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer in the library's form.

    Attributes:
        size: of the model's vocabulary; its ids are below it.
        end_id: stands for the end of an answer in masks.
        num_ids: of a mask, that one too.
    """

    tokenizer: LLTokenizer
    size: int
    end_id: int

    @property
    def num_ids(self) -> int:
        return int(self.tokenizer.vocab_size)


def load(path: Path | None, vocab_size: int) -> Vocabulary:
    """Takes a second where there are 150,000 tokens.

    Args:
        path: of a tokenizer.json; None: the checkpoint brings none.

    Raises:
        VocabularyError
    """
    if path is None:
        raise VocabularyError("the model's checkpoint brings no tokenizer.json")
    try:
        return _of(json.loads(path.read_bytes()), vocab_size)
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise VocabularyError(f"the model's tokenizer.json cannot be used: {error}") from error


def library_name(tokenizer_digest: str, vocab_size: int) -> str:
    """A feature's name: equal where the same tokens are masked."""
    version = importlib.metadata.version("llguidance")
    of = hashlib.blake2b(json.dumps([FORM, version, tokenizer_digest, vocab_size]).encode(), digest_size=8)
    return f"{GRAMMAR_LIBRARY}{re.sub(r'[^a-z0-9]+', '-', version)}-{of.hexdigest()}"


def _of(tokenizer: dict[str, Any], vocab_size: int) -> Vocabulary:
    added = tokenizer["added_tokens"] = list(tokenizer.get("added_tokens") or ())
    known = tokenizer["model"]["vocab"]
    # A vocabulary of pieces with their scores is a list, whose places are the ids.
    ids = [*(known.values() if isinstance(known, dict) else range(len(known))), *(each["id"] for each in added)]
    end_id = max(ids) + 1
    if end_id > vocab_size:
        raise ValueError(f"it has {end_id} ids, and the model {vocab_size}")
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added.append({"id": end_id, "content": _END, "special": True, **flags})
    made = LLTokenizer(json.dumps(tokenizer), n_vocab=max(vocab_size, end_id + 1), eos_token=end_id)
    if made.tokenize_str(_END, parse_special=True) != [end_id]:
        raise ValueError("its tokens do not have the ids that it says")
    return Vocabulary(made, vocab_size, end_id)
