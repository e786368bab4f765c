"""A tokenizer.json, made of what a GGUF file says of its tokenizer."""

import base64
from collections.abc import Callable
from typing import Any, Final

from kakeya_shared.gguf.gguf_error import GgufError
from kakeya_shared.gguf.metadata import Metadata
from kakeya_shared.gguf.tokenizer.pre_tokenizers import pre_tokenizer
from kakeya_shared.gguf.tokenizer.vocabulary import Kind, Vocabulary

_BLANK: Final = "▁"  # as SentencePiece writes one
_MERGES: Final = "tokenizer.ggml.merges"
_ADD_BOS, _ADD_EOS = "tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token"
_ADD_BLANK: Final = "tokenizer.ggml.add_space_prefix"
_LONGEST_PIECE: Final = 512
"""Letters: how a piece may be made of two others is tried at each."""
_SENTENCEPIECE_PARTS: Final = {"unk_token": 0, "bos_token": 1, "eos_token": 2}
_UNIGRAM_PARTS: Final = {"pad_token": 0, "eos_token": 1, "unk_token": 2}


def tokenizer_of(said: Metadata) -> tuple[dict[str, Any], Vocabulary]:
    """A tokenizer.json, and its vocabulary.

    Raises:
        GgufError: the file holds none, or one of a kind that is not known.
    """
    kind = said.text("tokenizer.ggml.model")
    make = _KINDS.get(kind)
    if make is None:
        known = ", ".join(_KINDS)
        raise GgufError(
            f"its tokenizer is of the kind {kind!r}; what can be read: {known}" if kind else "it holds no tokenizer"
        )
    parts, vocabulary = make(said, Vocabulary.read(said))
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(vocabulary, id_) for id_ in vocabulary.added],
        **parts,
    }, vocabulary


def _byte_pairs(said: Metadata, vocabulary: Vocabulary) -> tuple[dict[str, Any], Vocabulary]:
    """BPE over bytes, as GPT-2 has it."""
    if not said.length(_MERGES):
        raise GgufError(f"it does not say {_MERGES}")
    cut = pre_tokenizer(said.text("tokenizer.ggml.pre"), said.text("general.architecture"))
    model = _bpe(vocabulary, [_pair(merge) for merge in said.texts(_MERGES)])
    steps = list(cut.steps)
    return {
        "normalizer": {"type": "NFC"} if cut.composes else None,
        "pre_tokenizer": steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps},
        "post_processor": _around(said, vocabulary, adds_bos=cut.adds_bos),
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": model | {"ignore_merges": cut.takes_whole},
    }, vocabulary


def _sentence_pieces(said: Metadata, vocabulary: Vocabulary) -> tuple[dict[str, Any], Vocabulary]:
    """BPE as SentencePiece has it: pieces are merged by their scores, and unknown letters fall back to bytes.

    A blank is put in front of each part of a text between control tokens, as Llama's own tokenizer does it.
    """
    if not vocabulary.scores:
        raise GgufError("it does not say tokenizer.ggml.scores")
    for part, id_ in _SENTENCEPIECE_PARTS.items():
        vocabulary = vocabulary.with_part(part, id_)
    in_front = said.flag(_ADD_BLANK, default=True)
    blanks = {"type": "Replace", "pattern": {"String": " "}, "content": _BLANK}
    steps = [{"type": "Prepend", "prepend": _BLANK}, blanks] if in_front else [blanks]
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": _BLANK}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if in_front:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    falls_back = Kind.BYTE in vocabulary.kinds
    model = _bpe(vocabulary, _merges_by_scores(vocabulary)) | {"byte_fallback": falls_back, "fuse_unk": True}
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
        "post_processor": _around(said, vocabulary, adds_bos=True),
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": model | {"unk_token": vocabulary.tokens[vocabulary.parts.get("unk_token", 0)]},
    }, vocabulary


def _unigram(said: Metadata, vocabulary: Vocabulary) -> tuple[dict[str, Any], Vocabulary]:
    """The most probable pieces, by their scores, as T5 has it."""
    if not vocabulary.scores:
        raise GgufError("it does not say tokenizer.ggml.scores")
    for part, id_ in _UNIGRAM_PARTS.items():
        vocabulary = vocabulary.with_part(part, id_)
    steps: list[dict[str, Any]] = []
    charsmap = said.numbers("tokenizer.ggml.precompiled_charsmap")
    if charsmap:
        steps.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap.tobytes()).decode()})
    if said.flag("tokenizer.ggml.remove_extra_whitespaces", default=False):
        steps += [
            {"type": "Strip", "strip_left": True, "strip_right": True},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        ]
    in_front = "always" if said.flag(_ADD_BLANK, default=True) else "never"
    pieces = {"type": "Metaspace", "replacement": _BLANK, "prepend_scheme": in_front, "split": True}
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps} if steps else None,
        "pre_tokenizer": pieces,
        "post_processor": _around(said, vocabulary, adds_bos=False, adds_eos=True),
        "decoder": pieces,
        "model": {
            "type": "Unigram",
            "unk_id": vocabulary.parts["unk_token"],
            "vocab": [list(each) for each in zip(vocabulary.tokens, vocabulary.scores, strict=True)],
            "byte_fallback": Kind.BYTE in vocabulary.kinds,
        },
    }, vocabulary


_Maker = Callable[[Metadata, Vocabulary], tuple[dict[str, Any], Vocabulary]]
_KINDS: Final[dict[str, _Maker]] = {"gpt2": _byte_pairs, "llama": _sentence_pieces, "t5": _unigram}
"""By `tokenizer.ggml.model`."""


def _bpe(vocabulary: Vocabulary, merges: list[tuple[str, str]]) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "vocab": {token: id_ for id_, token in enumerate(vocabulary.tokens)},
        "merges": [list(merge) for merge in merges],
    }


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    if not left or not right or " " in right:
        raise GgufError(f"{_MERGES} holds {merge!r:.80}, which is no pair")
    return left, right


def _merges_by_scores(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Every pair of pieces that is a piece, the best piece first; of equal ones what was there first.

    As transformers' `generate_merges` does it.
    """
    ids = {token: id_ for id_, token in enumerate(vocabulary.tokens) if vocabulary.kinds[id_] == Kind.NORMAL}
    pairs = []
    for token, id_ in ids.items():
        if len(token) > _LONGEST_PIECE:
            raise GgufError(f"a token has {len(token):,} letters, which no piece of a text has")
        halves = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
        of_one = [(left, right) for left, right in halves if left in ids and right in ids]
        of_one.sort(key=lambda pair: (ids[pair[0]], ids[pair[1]]))
        pairs += [(vocabulary.scores[id_], pair) for pair in of_one]
    pairs.sort(key=lambda scored: -scored[0])
    return [pair for _, pair in pairs]


def _around(said: Metadata, vocabulary: Vocabulary, *, adds_bos: bool, adds_eos: bool = False) -> dict[str, Any] | None:
    """What is put before and behind a text; None for nothing."""
    wanted = {
        "bos_token": said.flag(_ADD_BOS, default=adds_bos),
        "eos_token": said.flag(_ADD_EOS, default=adds_eos),
    }
    ids = {part: vocabulary.parts[part] for part, is_wanted in wanted.items() if is_wanted and part in vocabulary.parts}
    if not ids:
        return None
    texts = {part: vocabulary.tokens[id_] for part, id_ in ids.items()}

    def template(*names: str) -> list[dict[str, Any]]:
        steps: list[dict[str, Any]] = []
        for number, name in enumerate(names):
            steps += [_special(texts[part], number) for part in ("bos_token",) if part in texts]
            steps.append({"Sequence": {"id": name, "type_id": number}})
            steps += [_special(texts[part], number) for part in ("eos_token",) if part in texts]
        return steps

    special = {texts[part]: {"id": texts[part], "ids": [id_], "tokens": [texts[part]]} for part, id_ in ids.items()}
    return {
        "type": "TemplateProcessing",
        "single": template("A"),
        "pair": template("A", "B"),
        "special_tokens": special,
    }


def _special(text: str, number: int) -> dict[str, Any]:
    return {"SpecialToken": {"id": text, "type_id": number}}


def _added(vocabulary: Vocabulary, id_: int) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    special = vocabulary.kinds[id_] != Kind.USER_DEFINED
    return {"id": id_, "content": vocabulary.tokens[id_], **flags, "special": special}
