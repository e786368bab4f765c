"""A tokenizer of whole words under a chat template of Qwen3's kind, for models of random weights.

Each token of an answer is a text at once, and each text of an answer is its tokens again.
"""

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from tests.unit.sdk import families
from tests.unit.sdk.tiny_tokenizer import save_files

END = "<|im_end|>"
_SPECIAL = ("<|endoftext|>", "<|im_start|>", END)
_CONTROL = (*_SPECIAL, "<think>", "</think>")
_ROLES = ("system", "user", "assistant")


def save(directory: Path, vocab_size: int) -> Path:
    """Writes its files; returns `directory`.

    The last ids are what the template writes; each other one is a word that is named for it, such as `<17>`.
    """
    first = vocab_size - len(_CONTROL)
    words = [f"<{token_id}>" for token_id in range(first - len(_ROLES))]
    vocabulary = {word: token_id for token_id, word in enumerate((*words, *_ROLES, *_CONTROL))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=words[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_tokens([AddedToken(each, special=each in _SPECIAL, normalized=False) for each in _CONTROL])
    save_files(directory, tokenizer, eos_token=END)
    (directory / "chat_template.jinja").write_text(families.ONES["qwen3"])
    return directory


def endless(vocab_size: int) -> dict[str, int]:
    """The logit bias of an answer that is words alone: it ends by its length, and all of it is told."""
    return {str(vocab_size - 1 - place): -100 for place in range(len(_CONTROL))}
