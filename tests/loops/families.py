"""Models of well-known families as far as their text goes: a tokenizer of the family's kind and its chat template."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya_shared import installed_models
from tests.integration.open_http import MODEL
from tests.unit.sdk import families, model_tokenizers


def _nano(folder: Path) -> None:
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(installed_models.directory(MODEL) / name, folder)


def _family(build: Callable[[Path], None], template: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        build(folder)
        (folder / "chat_template.jinja").write_text(families.ONES[template])

    return make


@dataclass(frozen=True)
class Family:
    """One.

    Attributes:
        name: for people.
        end: the control token that ends an answer.
        make: writes its files into a folder that is not there yet.
        thinks: it thinks before it answers.
    """

    name: str
    end: str
    make: Callable[[Path], None]
    thinks: bool = False

    @property
    def model(self) -> str:
        """Its name as a served model."""
        return self.name.lower().replace(" ", "-")


FAMILIES = (
    Family("Qwen3", "<|im_end|>", _family(model_tokenizers.qwen, "qwen3"), thinks=True),
    Family("Qwen2.5", "<|im_end|>", _family(model_tokenizers.qwen, "qwen2_5")),
    Family("Llama 3.1", "<|eot_id|>", _family(model_tokenizers.llama3, "llama3")),
    Family("Mistral", "</s>", _family(model_tokenizers.mistral, "mistral")),
    Family("Gemma 3", "<end_of_turn>", _family(model_tokenizers.gemma, "gemma3")),
    Family("nano", "<|im_end|>", _nano),
)
XML = Family("Qwen3-Coder", "<|im_end|>", _family(model_tokenizers.qwen, "qwen3_coder"))
"""Its calls are no JSON."""
CODER = Family("Coder", "<|im_end|>", _family(_nano, "qwen2_5"))
"""It takes tools, and knows English words: what coding agents say is a third as long in its tokens as in letters."""


@dataclass(frozen=True)
class FamilyModel:
    """A family's files, and what can be done with them.

    Attributes:
        folder: the files; a worker and a shim are started on it.
    """

    family: Family
    folder: Path

    @classmethod
    def made(cls, family: Family, folder: Path) -> "FamilyModel":
        """Writes the files."""
        family.make(folder)
        made = cls(family, folder)
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": made.end_id}))
        return made

    @property
    def end_id(self) -> int:
        """The token that ends an answer."""
        return json_tokens(self.folder)[self.family.end]

    @cached_property
    def tokenizer(self) -> ChatTokenizer:
        return ChatTokenizer(str(self.folder))

    def tokens(self, text: str, thought: str = "") -> list[int]:
        """Of an answer, with its end; what spells a control token in it is text.

        Args:
            thought: before it, of a model that thinks; others leave it out.
        """
        answer = [*self._text_tokens(text), self.end_id]
        if not (thought and self.family.thinks):
            return answer
        opens, closes = (json_tokens(self.folder)[tag] for tag in ("<think>", "</think>"))
        return [opens, *self._text_tokens(thought), closes, *self._text_tokens("\n\n"), *answer]

    def content(self, token_ids: Sequence[int]) -> str:
        """What a client has of an answer."""
        text = self.tokenizer.decode(list(token_ids))
        return text.partition("</think>")[2] if text.startswith("<think>") else text

    def _text_tokens(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, special_tokens=False, parses=False)


def json_tokens(folder: Path) -> dict[str, int]:
    """The ids of the added tokens of a tokenizer, by their texts."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    return {each["content"]: each["id"] for each in tokenizer["added_tokens"]}
