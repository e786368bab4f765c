"""A file's tokens, what each is, and which of them have a part to play."""

from array import array
from dataclasses import dataclass
from enum import IntEnum
from itertools import repeat
from typing import Final

from kakeya_shared.gguf.gguf_error import GgufError
from kakeya_shared.gguf.metadata import Metadata

_TOKENS: Final = "tokenizer.ggml.tokens"
_KINDS: Final = "tokenizer.ggml.token_type"
_SCORES: Final = "tokenizer.ggml.scores"
_PARTS: Final = {
    "bos": "bos_token",
    "eos": "eos_token",
    "unknown": "unk_token",
    "padding": "pad_token",
}
"""By what files call them: what a tokenizer_config.json does."""
_ENDS: Final = ("eos", "eot", "eom")
_ENDS_BY_TEXT: Final = frozenset(
    (
        "<|eot_id|>",
        "<|eom_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|end_of_text|>",
        "<|endoftext|>",
        "<end_of_utterance>",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
    )
)
"""Control tokens that end an answer whatever a file says: it names three at the most, and many name one."""


class Kind(IntEnum):
    """What a token is; ggml's `LLAMA_TOKEN_TYPE_*`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by their ids.

    Attributes:
        kinds: each one's.
        scores: each one's; empty where the file has none.
        parts: ids by `bos_token`, `eos_token`, `unk_token`, `pad_token`.
        ends: ids that end an answer, the first one first.
    """

    tokens: list[str]
    kinds: list[int]
    scores: list[float]
    parts: dict[str, int]
    ends: list[int]

    @classmethod
    def read(cls, said: Metadata) -> "Vocabulary":
        """Raises GgufError: there are no tokens, one stands there twice, or a list is of another length."""
        tokens = list(said.texts(_TOKENS))
        if not tokens:
            raise GgufError("it holds no tokenizer")
        if len(set(tokens)) != len(tokens):
            raise GgufError(f"{_TOKENS} holds a token twice")
        kinds = list(said.numbers(_KINDS) or repeat(int(Kind.NORMAL), len(tokens)))
        scores = list(said.numbers(_SCORES) or array("f"))
        for key, values in ((_KINDS, kinds), (_SCORES, scores)):
            if values and len(values) != len(tokens):
                raise GgufError(f"{key} is of {len(values):,} tokens, and there are {len(tokens):,}")
        named = {name: _id(said, name, len(tokens)) for name in (*_PARTS, *_ENDS)}
        parts = {part: id_ for name, part in _PARTS.items() if (id_ := named[name]) is not None}
        by_name = [id_ for name in _ENDS if (id_ := named[name]) is not None]
        by_text = [id_ for id_, token in enumerate(tokens) if token in _ENDS_BY_TEXT and kinds[id_] == Kind.CONTROL]
        return cls(tokens, kinds, scores, parts, list(dict.fromkeys([*by_name, *by_text])))

    def with_part(self, part: str, default: int) -> "Vocabulary":
        """With a part that the file does not name."""
        if part in self.parts or default >= len(self.tokens):
            return self
        ends = self.ends if part != "eos_token" else [default, *self.ends]
        return Vocabulary(self.tokens, self.kinds, self.scores, {**self.parts, part: default}, ends)

    @property
    def added(self) -> list[int]:
        """Ids of tokens that are found in a text before it is cut."""
        return [id_ for id_, kind in enumerate(self.kinds) if kind in (Kind.CONTROL, Kind.USER_DEFINED, Kind.UNKNOWN)]


def _id(said: Metadata, name: str, num_tokens: int) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    if key not in said or said.is_one_of(key, (-1, 2**32 - 1)):  # what writers put there for none
        return None
    id_ = said.integer(key, least=0)
    if id_ >= num_tokens:
        raise GgufError(f"{key} is {id_}, and there are {num_tokens:,} tokens")
    return id_
