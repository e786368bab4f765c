"""Chat templates written in the ways of well-known model families: what each asks of Jinja and of its messages."""

import json
from pathlib import Path

from tokenizers import AddedToken

from tests.unit.sdk import tiny_tokenizer

HERE = Path(__file__).parent
ONES = {path.stem: path.read_text("utf-8") for path in sorted(HERE.glob("*.jinja"))}
NAMED = {path.stem: path.read_text("utf-8") for path in sorted((HERE / "command_r").glob("*.jinja"))}

CONTROL = (HERE / "control_tokens.txt").read_text("utf-8").split()
"""What they write, as tokens of their tokenizers; those that do not end in `|>` are not special there."""


def save(folder: Path, template: str | None = None) -> None:
    """Writes a tokenizer of bytes and of what these templates write; the control tokens are ids of their own."""
    tiny_tokenizer.save(folder, template=False, markers=False)
    tiny_tokenizer.add(folder, *(AddedToken(each, special=each[-2:] == "|>", normalized=False) for each in CONTROL))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
