"""Single tokens, as a tokenizer's vocabulary writes them."""

import json
from typing import Any


class Vocabulary:
    """What each id stands for.

    Args:
        tokenizer: of transformers.

    Attributes:
        is_byte_level: its tokens are written in the 256 letters that stand for bytes in byte-level BPE.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._added = frozenset(tokenizer.added_tokens_decoder)
        self.is_byte_level = tokenizer.is_fast and _is_byte_level(tokenizer.backend_tokenizer.decoder)

    def token(self, token_id: int) -> str:
        """As the vocabulary writes it; "" where no token has that id."""
        if self._tokenizer.is_fast:
            return self._tokenizer.backend_tokenizer.id_to_token(token_id) or ""
        return str(self._tokenizer.convert_ids_to_tokens(token_id)) if token_id < len(self._tokenizer) else ""

    def is_added(self, token_id: int) -> bool:
        """Whether a token was added to what was learned, as special ones are: it is written as its text is."""
        return token_id in self._added


def _is_byte_level(decoder: Any) -> bool:
    """Whether a decoder of the library tokenizers is, or has among its parts, the one of byte-level BPE."""
    if decoder is None:
        return False
    state = json.loads(decoder.__getstate__())
    return any(part["type"] == "ByteLevel" for part in [state, *state.get("decoders", [])])
