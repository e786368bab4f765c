"""Tokenizers built in the ways of well-known families, each trained on a few texts of many scripts."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.unit.sdk.tiny_tokenizer import save_files

_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA = _QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
_BLANK = "\N{LOWER ONE EIGHTH BLOCK}"
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_SCRIPTS = {
    "latin": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "accents": "àâäéèêëïîôöùûüÿçñßøåæœŁżğİıĐ",
    "joined": "e\u0301a\u0308n\u0303\u1e9b\u0323ﬁﬂ①²Ⅷ℀ｶﾞ㍿",
    "greek": "αβγδεζηθικλμνξοπρστυφχψωΆΈ",
    "cyrillic": "абвгдежзийклмнопрстуфхцчшщъыьэюяЁҐ",
    "arabic": "ابتثجحخدذرزسشصضطظعغفقكلمنهوي\u064b\u0650",
    "hebrew": "אבגדהוזחטיכלמנסעפצקרשת",
    "devanagari": "अआइईउऊएकखगघचछजझटठडढणतथदधनपफबभमयरलवशषसह\u094d\u093e\u093f",
    "thai": "กขคงจฉชซญดตถทธนบปผฝพฟมยรลวศสหอ\u0e31\u0e34\u0e48",
    "han": "的一是不了人我在有他这中大来上国个到说们為時間漢字龜",
    "kana": "あいうえおかきくけこさしすせそアイウエオカキクケコ々ー",
    "hangul": "가나다라마바사아자차카타파하한국어\u1100\u1161",
    "emoji": "😀🎉👩\u200d👩\u200d👧🇫🇷👍🏽\u2764\ufe0f",
    "digits": "0123456789",
    "code": "{}[]()<>|/\\\"'`~!@#$%^&*-_=+;:,.?",
    "blanks": " \t\n\r\u00a0\u3000",
    "odd": "\x00\x07\x1b\x7f\u200b\ufeff\ufffd\ue000\U000f0000\U0010ffff𝄞𒀀",
}


def texts(number: int, seed: int = 0) -> list[str]:
    """Texts of one script each, or of several, with blanks and marks between their words."""
    random = Random(seed)
    names = list(_SCRIPTS)

    def word() -> str:
        letters = _SCRIPTS[random.choice(names[: random.choice([3, 12, len(names)])])]
        return "".join(random.choices(letters, k=random.randint(1, 8)))

    def text() -> str:
        gaps = random.choices([" ", "", ", ", "  ", "\n", ". ", "\n\n", "\t", " 's"], [8, 2, 2, 1, 1, 1, 1, 1, 1], k=12)
        return "".join(word() + gap for gap in gaps[: random.randint(0, 12)])

    return [text() for _ in range(number)]


def _trained(pre_tokenizer: Any, normalizer: Any = None, *, alphabet: list[str] | None = None) -> dict[str, Any]:
    """The model of a trained BPE, as JSON."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=1500, initial_alphabet=alphabet or [], show_progress=False)
    english = ["the end of a text is not its beginning", "system user assistant think </s> <s> im_end start"] * 20
    tokenizer.train_from_iterator([*texts(800, seed=1), *english], trainer)
    model: dict[str, Any] = json.loads(tokenizer.to_str())["model"]
    return model


def _byte_level(pre_tokenizer: Any, normalizer: Any = None, **model: Any) -> Tokenizer:
    learned = _trained(pre_tokenizer, normalizer, alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    merges = [tuple(merge) for merge in learned["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=learned["vocab"], merges=merges, **model))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    return tokenizer


def _byte_fallback(pre_tokenizer: Any, *first: str, merges: tuple[tuple[str, str], ...] = ()) -> Tokenizer:
    replace = normalizers.Replace(" ", _BLANK)
    learned = _trained(pre_tokenizer, replace)
    words = [*first, *_BYTES, *sorted(learned["vocab"], key=learned["vocab"].get)]
    words += [piece for pair in merges for piece in (*pair, "".join(pair))]
    vocab = {word: id_ for id_, word in enumerate(dict.fromkeys(words))}
    all_merges = [*map(tuple, learned["merges"]), *merges]
    return Tokenizer(models.BPE(vocab=vocab, merges=all_merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))


def _with_bos(tokenizer: Tokenizer, bos: str) -> None:
    ids = [(bos, tokenizer.token_to_id(bos))]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=ids
    )


def _add(tokenizer: Tokenizer, special: str, others: str = "") -> None:
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in special.split()])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in others.split()])


def qwen(folder: Path) -> None:
    """Byte-level BPE, nothing around a text, some control tokens not special."""
    split = pre_tokenizers.Split(Regex(_QWEN), "isolated")
    parts = [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    tokenizer = _byte_level(pre_tokenizers.Sequence(parts), normalizers.NFC())
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    _add(tokenizer, "<|endoftext|> <|im_start|> <|im_end|>", "<tool_response> </tool_response> <think> </think>")
    save_files(folder, tokenizer, tokenizer_class="Qwen2Tokenizer", eos_token="<|im_end|>", pad_token="<|endoftext|>")


def llama3(folder: Path) -> None:
    """Byte-level BPE, a first token by the post-processor."""
    split = pre_tokenizers.Split(Regex(_LLAMA), "isolated")
    parts = [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    tokenizer = _byte_level(pre_tokenizers.Sequence(parts), ignore_merges=True)
    _add(tokenizer, "<|begin_of_text|> <|end_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|>")
    _with_bos(tokenizer, "<|begin_of_text|>")
    told = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "clean_up_tokenization_spaces": True}
    save_files(folder, tokenizer, **told)


def smollm(folder: Path) -> None:
    """Byte-level BPE of GPT-2's kind, digits one by one."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer = _byte_level(pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]))
    _add(tokenizer, "<|endoftext|> <|im_start|> <|im_end|>", "<think> </think>")
    told = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "unk_token": "<|endoftext|>"}
    save_files(folder, tokenizer, **told, add_prefix_space=False)


def mistral(folder: Path) -> None:
    """BPE with byte fallback, a blank in front of what is first."""
    metaspace = pre_tokenizers.Metaspace(_BLANK, prepend_scheme="first", split=False)
    tokenizer = _byte_fallback(metaspace, "<unk>", "<s>", "</s>")
    tokenizer.pre_tokenizer = metaspace
    parts = [decoders.Replace(_BLANK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(parts)
    _add(tokenizer, "<unk> <s> </s> [INST] [/INST] [TOOL_CALLS] [TOOL_RESULTS] [/TOOL_RESULTS]")
    _with_bos(tokenizer, "<s>")
    told = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True}
    save_files(folder, tokenizer, tokenizer_class="LlamaTokenizer", **told)


def llama2(folder: Path) -> None:
    """The same as older files have it, by normalizers; and merges that lead from letters to a control token."""
    merges = (("<", "/"), ("</", "s"), ("</s", ">"))
    tokenizer = _byte_fallback(pre_tokenizers.Metaspace(_BLANK, split=False), "<unk>", "<s>", merges=merges)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_BLANK), normalizers.Replace(" ", _BLANK)])
    parts = [decoders.Replace(_BLANK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(parts)
    _add(tokenizer, "<unk> <s> </s>")
    _with_bos(tokenizer, "<s>")
    save_files(folder, tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>", add_bos_token=False)


def gemma(folder: Path) -> None:
    """BPE with byte fallback, no blank in front, blanks and tags of HTML among what was added."""
    split = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer = _byte_fallback(split, "<pad>", "<eos>", "<bos>", "<unk>", "<mask>")
    tokenizer.normalizer = normalizers.Replace(" ", _BLANK)
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.Sequence([decoders.Replace(_BLANK, " "), decoders.ByteFallback(), decoders.Fuse()])
    _add(tokenizer, "<pad> <eos> <bos> <unk> <mask> <start_of_turn> <end_of_turn>", "<table> </table>")
    tokenizer.add_tokens([AddedToken(blanks, normalized=False) for blanks in ("\n\n", "\n\n\n", "\t\t", _BLANK * 2)])
    _with_bos(tokenizer, "<bos>")
    told = {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"}
    save_files(folder, tokenizer, tokenizer_class="GemmaTokenizer", **told)


def unigram(folder: Path) -> None:
    """Unigram behind a normalizer, and control tokens that are looked for in what it makes of a text."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(_BLANK)
    tokenizer.decoder = decoders.Metaspace(_BLANK)
    told: dict[str, Any] = {"vocab_size": 900, "unk_token": "<unk>", "special_tokens": ["<unk>", "</s>"]}
    tokenizer.train_from_iterator(texts(800, seed=1), trainers.UnigramTrainer(**told, show_progress=False))
    tokenizer.add_tokens([AddedToken("<think>", normalized=True), AddedToken("</think>", normalized=True)])
    save_files(folder, tokenizer, eos_token="</s>", unk_token="<unk>", clean_up_tokenization_spaces=True)


BUILDERS: dict[str, Callable[[Path], None]] = {
    each.__name__: each for each in (qwen, llama3, smollm, mistral, llama2, gemma, unigram)
}
