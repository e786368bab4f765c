"""A tokenizer of 258 ids: one for each byte, and the two that mark a message."""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

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
    if markers:
        tokenizer.add_special_tokens([END, START])
    save_files(folder, tokenizer, **({"eos_token": END, "extra_special_tokens": [START]} if markers else {}))
    if template:
        (folder / "chat_template.jinja").write_text(TEMPLATE)


def save_files(folder: Path, tokenizer: Tokenizer, **config: Any) -> None:
    """Writes a tokenizer's files, as transformers reads them too."""
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def save_with_words(folder: Path, num_words: int) -> Path:
    """Writes the files of a tokenizer with a template, and with so many words beside its 258 ids; returns `folder`."""
    save(folder, template=True)
    add(folder, *(f"word{number}" for number in range(num_words)))
    return folder


def save_with_start(folder: Path) -> None:
    """Writes the files of a tokenizer with a template that puts START before each text."""
    save(folder, template=True)
    file = str(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_file(file)
    start = [(START, tokenizer.token_to_id(START))]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{START} $A", special_tokens=start)
    tokenizer.save(file)


def add(folder: Path, *tokens: str | AddedToken) -> None:
    """Adds tokens to the one that is there."""
    path = str(folder / "tokenizer.json")
    larger = Tokenizer.from_file(path)
    larger.add_tokens(list(tokens))
    larger.save(path)
