"""A real byte-level BPE tokenizer, trained on the demo's texts in the form of Qwen's own."""

from collections.abc import Iterable
from typing import Final

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from kakeya_worker.demo_checkpoint import shape

END_OF_TEXT: Final = "<|endoftext|>"
START_OF_TURN: Final = "<|im_start|>"
END_OF_TURN: Final = "<|im_end|>"

# How Qwen2 and Qwen3 split text into words (tokenizer.json of Qwen/Qwen3-0.6B).
_WORD = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def train_tokenizer(sentences: Iterable[str]) -> Tokenizer:
    """A tokenizer of `shape.VOCAB_SIZE` entries; its three special tokens are the last ids, as Qwen's are."""
    special = [END_OF_TEXT, START_OF_TURN, END_OF_TURN]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORD), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.train_from_iterator(
        sentences,
        trainers.BpeTrainer(
            vocab_size=shape.VOCAB_SIZE - len(special),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        ),
    )
    tokenizer.add_special_tokens(special)
    return tokenizer


def tokenizer_config() -> dict[str, object]:
    """tokenizer_config.json; the chat template is ChatML without a default system prompt."""
    return {
        "tokenizer_class": "Qwen2Tokenizer",
        "eos_token": END_OF_TURN,
        "pad_token": END_OF_TEXT,
        "bos_token": None,
        "unk_token": None,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
        "chat_template": _CHAT_TEMPLATE,
    }
