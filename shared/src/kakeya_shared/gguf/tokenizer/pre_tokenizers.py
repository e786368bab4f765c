"""How texts are cut before their letters are merged, by the names that GGUF files have for it.

Those of Llama 3, Qwen2, SmolLM and Mistral's Tekken are those of the models' own tokenizer.json. Of models that were
made of these the names stand for the same cut, as in llama.cpp's table (llama-vocab.cpp). A name that is not here is
refused: a cut that is guessed makes other tokens of some texts, and nobody would see it.
"""

from dataclasses import dataclass
from typing import Any, Final

from kakeya_shared.gguf.gguf_error import GgufError

_CONTRACTION: Final = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL: Final = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3: Final = _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _TAIL
_QWEN2: Final = _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _TAIL
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN: Final = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_BYTES: Final = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
_GPT2: Final = {**_BYTES, "use_regex": True}
_DIGITS: Final = {"type": "Digits", "individual_digits": True}


@dataclass(frozen=True)
class PreTokenizer:
    """One of them, with what else goes with its name.

    Attributes:
        steps: in the words of a tokenizer.json.
        takes_whole: a piece that is a token as a whole is that token, whatever the merges.
        adds_bos: the token that begins a text stands before each, where the file does not say.
        composes: letters are composed first (NFC).
    """

    steps: tuple[dict[str, Any], ...]
    takes_whole: bool = False
    adds_bos: bool = False
    composes: bool = False


def _by_pattern(pattern: str, **others: bool) -> PreTokenizer:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return PreTokenizer((split, _BYTES), **others)


_LLAMA3_CUT: Final = _by_pattern(_LLAMA3, takes_whole=True, adds_bos=True)
_QWEN2_CUT: Final = _by_pattern(_QWEN2, composes=True)
_DIGITS_CUT: Final = PreTokenizer((_DIGITS, _GPT2))
_NAMED: Final = {
    "llama3": _LLAMA3_CUT,
    "llama-v3": _LLAMA3_CUT,
    "llama-bpe": _LLAMA3_CUT,
    "falcon3": _LLAMA3_CUT,
    "tekken": _by_pattern(_TEKKEN, takes_whole=True, adds_bos=True),
    "smaug-bpe": _by_pattern(_LLAMA3),
    "qwen2": _QWEN2_CUT,
    "deepseek-r1-qwen": _by_pattern(_QWEN2),
    "gpt-2": PreTokenizer((_GPT2,)),
    "smollm": _DIGITS_CUT,
    "starcoder": _DIGITS_CUT,
    "refact": _DIGITS_CUT,
}
_OF_ARCHITECTURES: Final = {"qwen2": "qwen2", "qwen3": "qwen2"}
"""Where a file does not say: of families that have always had the same one."""


def pre_tokenizer(name: str, architecture: str) -> PreTokenizer:
    """By its name in a file; "" where that says none.

    Raises:
        GgufError: it is not known.
    """
    name = name or _OF_ARCHITECTURES.get(architecture, "")
    if name not in _NAMED:
        said = f"the pre-tokenizer {name!r} is not known" if name else "it does not say its pre-tokenizer"
        raise GgufError(f"{said}, and none is guessed; known are: {', '.join(sorted(_NAMED))}")
    return _NAMED[name]
