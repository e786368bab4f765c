"""A tokenizer of 258 ids: one for each byte, and the two that mark a message."""

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

START, END = "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def save(folder: Path, *, template: bool, markers: bool = True) -> None:
    """Writes the tokenizer's files."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    marks = {"eos_token": END, "additional_special_tokens": [START]} if markers else {}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks)
    if template:
        fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)


def save_with_words(folder: Path, num_words: int) -> Path:
    """Writes the files of a tokenizer with a template, and with so many words beside its 258 ids; returns `folder`."""
    save(folder, template=True)
    larger = PreTrainedTokenizerFast.from_pretrained(folder)
    larger.add_tokens([f"word{number}" for number in range(num_words)])
    larger.save_pretrained(folder)
    return folder
