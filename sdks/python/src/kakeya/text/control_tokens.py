"""Which tokens a text must not become: those that were added to a vocabulary to mark what is what."""

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from kakeya.text.rendering.marked_text import StandIns
from kakeya.text.tokenizer_error import PromptRefused

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

_BLANK = "\N{LOWER ONE EIGHTH BLOCK}"  # as SentencePiece writes a blank
_NUM_LOOKED_UP = 1 << 16
# JSON writes these, and what is below a blank, with a backslash in front, which a stand-in would not get.
_NEVER_EXCHANGED = frozenset('"\\')


class ControlTokens:
    """The control tokens of a tokenizer, and which texts could be part of one.

    Added tokens of blanks alone, as some vocabularies have them for code, are text. So are words: letters and digits
    that are not special, which were added to be one token.

    Attributes:
        contents: what each is written as, by its id.
        stand_ins: for the letters that they are made of.
    """

    def __init__(self, backend: "Tokenizer") -> None:
        tokens = {id_: token for id_, token in backend.get_added_tokens_decoder().items() if _is_control(token)}
        self.contents = {id_: token.content for id_, token in tokens.items()}
        first = sorted(tokens.values(), key=lambda token: not token.special)
        texts = [token.content.strip() for token in first]
        edges = dict.fromkeys(letter for text in texts for letter in (text[0], text[-1]))
        letters = [letter for letter in dict.fromkeys("".join([*edges, *texts])) if _is_exchanged(letter)]
        self.stand_ins = StandIns(letters)
        self._edge = re.compile(f"[{re.escape(''.join(edges))}]") if edges else None
        self._all = "\0".join(texts)
        self._longest = max(map(len, texts), default=0)
        # Of some letters a normalizer makes such a letter. They are looked up as they come.
        normalizer = backend.normalizer if any(token.normalized for token in tokens.values()) else None
        self._normalized = None if normalizer is None else lru_cache(_NUM_LOOKED_UP)(normalizer.normalize_str)

    def is_read(self, token_id: int, letters: str) -> bool:
        """Whether an id is a control token's that was read from these letters.

        It is not where the letters are unknown, and the id stands for all that is.
        """
        content = self.contents.get(token_id)
        if content is None:
            return False
        if content in letters or self._normalized is None:
            return content in letters
        return self._normalized(content) in self._normalized(letters)

    def falls_on(self, text: str) -> bool:
        """Whether a text could be part of a control token, by itself or with what stands beside it.

        A part that is not the whole text holds the token's first letter or its last one.

        Raises:
            PromptRefused: it holds letters of more scripts than can be told apart.
        """
        if self._edge is None or not text or text.isspace():
            return False
        if self._edge.search(text) or (len(text) <= self._longest and text.strip() in self._all):
            return True
        if self._normalized is None or text.isascii():
            return False
        found = [letter for letter in set(text) if self._becomes_one(letter, self._normalized(letter))]
        return bool(found)

    def _becomes_one(self, letter: str, normalized: str) -> bool:
        """Whether a letter is made one of a control token's: it has a stand-in, too, from then on."""
        if letter in self.stand_ins:
            return True
        if letter.isascii() or not any(each in self.stand_ins for each in normalized):
            return False
        if not self.stand_ins.add([letter]):
            raise PromptRefused(f"{letter!r} may be taken for a part of a control token: write it in another way")
        return True


def _is_control(token: "AddedToken") -> bool:
    bare = token.content.replace(_BLANK, " ").strip()
    is_word = not token.special and all(letter.isalnum() or letter.isspace() for letter in bare)
    return not is_word and any(map(_is_exchanged, bare))


def _is_exchanged(letter: str) -> bool:
    return letter not in _NEVER_EXCHANGED and letter > " " and not letter.isspace()
