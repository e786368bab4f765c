"""Single tokens as OpenAI's API shows them beside their log probabilities: text and bytes."""

import re
from functools import lru_cache, partial

from kakeya.text.vocabulary import Vocabulary
from kakeya_http_shim.models.model_tokenizer import ModelTokenizer

_NUM_CACHED = 1024
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")  # a byte that no other token of the vocabulary holds
_BLANK = "\N{LOWER ONE EIGHTH BLOCK}"  # as SentencePiece writes a blank


class TokenTexts:
    """What tokens stand for by themselves, special ones included."""

    def __init__(self, tokenizer: ModelTokenizer) -> None:
        self._bytes = lru_cache(_NUM_CACHED)(partial(_token_bytes, tokenizer.vocabulary))

    def text(self, token_id: int) -> str:
        """What is no UTF-8 by itself, such as half a character, is replaced; "" where there is no such token."""
        return self._bytes(token_id).decode(errors="replace")

    def bytes(self, token_id: int) -> bytes:
        """Exact ones; none where there is no such token."""
        return self._bytes(token_id)


def _token_bytes(vocabulary: Vocabulary, token_id: int) -> bytes:
    token = vocabulary.token(token_id)
    if vocabulary.is_added(token_id):
        return token.encode()
    if vocabulary.is_byte_level:
        return _from_letters(token)
    if byte := _BYTE.fullmatch(token):
        return bytes.fromhex(byte[1])
    return token.replace(_BLANK, " ").encode()


def _byte_letters() -> dict[str, int]:
    """The letter of byte-level BPE that stands for each byte: itself where it is visible, else one from U+0100 on."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTES_BY_LETTER = _byte_letters()


def _from_letters(token: str) -> bytes:
    try:
        return bytes(_BYTES_BY_LETTER[letter] for letter in token)
    except KeyError:  # learned from text that was not written in these letters
        return token.encode()
