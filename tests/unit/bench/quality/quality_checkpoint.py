"""A random checkpoint with a tokenizer of its own that knows ChatML; and the oracle, which recalls what it sees."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from kakeya_bench.quality.material import facts, fillers
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.seams.verifier import ModelFacts
from tests.random_checkpoint import CONFIG, save_random_checkpoint

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def save_quality_checkpoint(directory: Path) -> Path:
    """The random checkpoint, with a tokenizer."""
    save_random_checkpoint(directory)
    save_tokenizer(directory, CHATML)
    return directory


def save_tokenizer(directory: Path, chat_template: str | None) -> None:
    """A byte-level BPE, trained on what the bench says."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=CONFIG["vocab_size"] - len(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sentences(), trainer)
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(directory / "tokenizer.json"))
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
    if chat_template is not None:
        config["chat_template"] = chat_template
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


def _sentences() -> list[str]:
    random = Random(0)
    said = [exchange for _ in range(300) for exchange in (fillers.draw(random, ()), facts.draw(random).telling)]
    return [text for exchange in said for text in exchange]


class Oracle:
    """What a stage needs of a verifier, whose model answers with the sentence that tells the fact, if all of it is
    visible to the query.

    It reads the slots that a row's keys lie in, so that what is overwritten or forgotten is gone.
    """

    def __init__(self, tokenizer: Tokenizer, max_positions: int = 4096) -> None:
        self._tokenizer = tokenizer
        self._start, self._eos = (tokenizer.get_vocab()[token] for token in ("<|im_start|>", "<|im_end|>"))
        self._header = tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False).ids
        self._seen: dict[int, list[int]] = {}
        vocab_size = tokenizer.get_vocab_size()
        self.facts = ModelFacts(
            "oracle", "float32", "float32", False, "none", vocab_size, max_positions, "as the test says", 8
        )

    def allocate(self, geometry: LaneGeometry, num_lanes: int) -> None:
        self._slab = np.full((num_lanes, geometry.num_slots), -1)

    def forward(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._slab[row.lane, row.slots] = row.token_ids
            visible = row.retention.slots(row.keys[row.visible[-1]])
            self._seen[row.lane] = self._slab[row.lane, visible].tolist()

    def logits(self, lanes: Sequence[int]) -> NDArray[np.float32]:
        logits = np.zeros((len(lanes), self.facts.vocab_size), np.float32)
        for index, lane in enumerate(lanes):
            logits[index, self._next(self._seen[lane])] = 1
        return logits

    def _next(self, seen: list[int]) -> int:
        assert -1 not in seen, "a slot was read that nobody wrote"
        began = max(index for index, token in enumerate(seen) if token == self._start) + len(self._header)
        answer = self._tokenizer.encode(self._answer(seen[:began]), add_special_tokens=False).ids
        return [*answer, self._eos][min(len(seen) - began, len(answer))]

    def _answer(self, seen: list[int]) -> str:
        text = self._tokenizer.decode(seen, skip_special_tokens=False)
        questions = re.findall(r"<\|im_start\|>user\n([^<]*)<\|im_end\|>", text)
        tellings = re.findall(
            rf"<\|im_start\|>user\n([^<]*)<\|im_end\|>\n<\|im_start\|>assistant\n{re.escape(facts.ACKNOWLEDGED)}", text
        )
        tellings += re.findall(r"(The user's [^<]* is [^<]*\.)<\|im_end\|>", text)
        about = [telling for telling in tellings if _is_about(telling, questions[-1])]
        return about[-1] if about else "I do not know."


def _is_about(telling: str, question: str) -> bool:
    for attribute in facts._ATTRIBUTES:
        asked = (*attribute.asked, *(form.format(n=attribute.name) for form in facts._ASKED))
        told = (*attribute.told, *facts._TOLD, "The user's {n} is {v}.")
        forms = (re.escape(form.format(n=attribute.name, v="@")).replace("@", r"[\w-]+") for form in told)
        if question in asked and any(re.fullmatch(form, telling) for form in forms):
            return True
    return False
