"""Single tokens, as a tokenizer's vocabulary writes them."""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Vocabulary:
    """What each id stands for.

    Attributes:
        is_byte_level: its tokens are written in the 256 letters that stand for bytes in byte-level BPE.
        added_ids: of tokens that were added to what was learned, special ones among them.
    """

    def __init__(self, backend: "Tokenizer") -> None:
        self._backend = backend
        added = backend.get_added_tokens_decoder()
        self._added = {token.content: id_ for id_, token in added.items()}
        self.added_ids = frozenset(added)
        self._special = {token.content: id_ for id_, token in added.items() if token.special}
        self._special_ids = frozenset(self._special.values())
        self.is_byte_level = _is_byte_level(backend)

    def token(self, token_id: int) -> str:
        """As the vocabulary writes it; "" where no token has that id."""
        return self._backend.id_to_token(token_id) or ""

    def is_added(self, token_id: int) -> bool:
        """Whether a token was added to what was learned, as special ones are: it is written as its text is."""
        return token_id in self.added_ids

    def added_id(self, content: str) -> int | None:
        """The added token that is written so, a special one or not; None where there is none."""
        return self._added.get(content)

    def byte_id(self, byte: int) -> int | None:
        """The token of one byte; None where it has none.

        Args:
            byte: from 0xAE on, which byte-level BPE writes as the letters of these codes.
        """
        letter = chr(byte) if self.is_byte_level else f"<0x{byte:02X}>"
        return self._backend.token_to_id(letter)

    def is_special(self, token_id: int) -> bool:
        """Whether a token has no text where special ones are left out."""
        return token_id in self._special_ids

    def special_id(self, content: str) -> int | None:
        """The special token that is written so; None where there is none."""
        return self._special.get(content)


def _is_byte_level(backend: "Tokenizer") -> bool:
    """Whether its decoder is, or has among its parts, the one of byte-level BPE."""
    if backend.decoder is None:
        return False
    state = json.loads(backend.decoder.__getstate__())
    return any(part["type"] == "ByteLevel" for part in [state, *state.get("decoders", [])])
