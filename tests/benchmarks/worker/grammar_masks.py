"""What a grammar costs a choice at a vocabulary of 49,152, SmolLM2's: its mask, and what is left of that in the step.

Answers are drawn token by token at random of what is allowed, under JSON schemas (tests/schemas.py) and as free text
beside strict tools. A mask is computed by a thread while the forward pass of the token before runs: what the step
itself pays is a choice under the mask, and that the next one is begun. It is compared with a choice that is free, of
the same logits, greedily, where nothing hides the difference. No forward pass runs meanwhile.

Exits with 1 when the median mask of schemas takes more than 60 us, or the median choice under one takes 150 us more
than a free one.
"""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from llguidance import LLMatcher
from tokenizers import Tokenizer

from kakeya_bench.report.quantities import Precise
from kakeya_bench.report.verdict import at_most
from kakeya_bench.statistics.distribution import percentile
from kakeya_http_shim.tools.grammars import strict_calls
from kakeya_http_shim.tools.grammars.lark import HeldTool
from kakeya_shared.settings.service import setting
from kakeya_worker.engine.sampling.sampling import Sampling, choose
from kakeya_worker.grammars.constraint import Constraint
from kakeya_worker.grammars.grammar import Grammar
from kakeya_worker.grammars.vocabulary import load
from kakeya_worker.host.daemon_threads import DaemonThreads
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchSettings, Found, Stage
from tests.schemas import schema

VOCAB_SIZE = 49_152
MASK_MICROSECONDS = 60.0
MORE_MICROSECONDS = 150.0
_EOS = "<|im_end|>"
_MAX_TOKENS = 128
_WAIT_SECONDS = 60.0
_GREEDY = Sampling()


class MaskSettings(BenchSettings):
    tokenizer: Path = setting(
        Path("build/clients/smollm2/tokenizer.json"), "SmolLM2's", reason="where `make bench-grammar` puts it"
    )
    schemas: int = setting(200, "JSON schemas, and as many texts", reason="half a minute", metavar="N", ge=1)


@dataclass
class Times:
    """Microseconds, token by token: of a mask, of a choice without it and of one with it."""

    masks: list[float] = field(default_factory=list)
    free: list[float] = field(default_factory=list)
    held: list[float] = field(default_factory=list)

    def add(self, mask_seconds: float, free_seconds: float, held_seconds: float) -> None:
        self.masks.append(mask_seconds * 1e6)
        self.free.append(free_seconds * 1e6)
        self.held.append(held_seconds * 1e6)

    @property
    def figures(self) -> dict[str, float]:
        more = [held - free for held, free in zip(self.held, self.free, strict=True)]
        return {
            "tokens": len(self.masks),
            "mask_p50_us": percentile(self.masks, 50),
            "mask_p99_us": percentile(self.masks, 99),
            "free_choice_p50_us": percentile(self.free, 50),
            "held_choice_p50_us": percentile(self.held, 50),
            "more_p50_us": percentile(more, 50),
        }


class Choices:
    """Answers under grammars, each token timed.

    Args:
        tokenizer: path of a tokenizer.json.
    """

    def __init__(self, tokenizer: Path, vocab_size: int) -> None:
        self._backend = Tokenizer.from_file(str(tokenizer))
        self._vocabulary = load(tokenizer, vocab_size)
        self._eos = self._backend.encode(_EOS, add_special_tokens=False).ids[0]
        self._threads = DaemonThreads(1, "masks")

    def close(self) -> None:
        self._threads.close(_WAIT_SECONDS)

    def of_schema(self, number: int) -> Grammar:
        return Grammar("json_schema", (json.dumps(schema(number)),))

    def of_text(self, number: int) -> Grammar:
        """Free text beside a strict tool."""
        added = {token.content: id_ for id_, token in self._backend.get_added_tokens_decoder().items()}
        tools = [HeldTool(0, "tool", schema(number))]
        return Grammar("lark", (strict_calls.grammar("hermes", tools, added.get, added.values(), is_single=False),))

    def answer(self, grammar: Grammar, number: int, times: Times) -> None:
        """One, to its end or its bound."""
        draw = np.random.default_rng(number)
        masks, constraint = self._matcher(grammar), self._constraint(grammar)
        words = np.empty(-(-self._vocabulary.num_ids // 32), np.int32)
        for index in range(_MAX_TOKENS):
            constraint.wait(_WAIT_SECONDS)
            logits = draw.standard_normal(self._vocabulary.size, np.float32)
            began_at = time.perf_counter()
            masks.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
            has_mask_at = time.perf_counter()
            choose(logits, _GREEDY, index)
            is_free_at = time.perf_counter()
            token_id = choose(logits, _GREEDY, index, allowed=constraint.allowed().token_ids)
            if token_id != self._eos:
                constraint.advance(token_id)
            is_held_at = time.perf_counter()
            times.add(has_mask_at - began_at, is_free_at - has_mask_at, is_held_at - is_free_at)
            if token_id == self._eos:
                break
            masks.consume_token(token_id)

    def _constraint(self, grammar: Grammar) -> Constraint:
        made = Constraint(
            grammar,
            self._vocabulary,
            self._matcher(grammar),
            lambda: self._matcher(grammar),
            [self._eos],
            self._threads,
        )
        made.begin([])
        return made

    def _matcher(self, grammar: Grammar) -> LLMatcher:
        return LLMatcher(self._vocabulary.tokenizer, grammar.library_form)


@bench.command(MaskSettings)
def measure(settings: MaskSettings, stage: Stage) -> Found:
    choices = Choices(settings.tokenizer, VOCAB_SIZE)
    step = stage.steps(2 * settings.schemas)
    found = {"schemas": Times(), "text_beside_strict_tools": Times()}
    for number in range(settings.schemas):
        choices.answer(choices.of_schema(number), number, found["schemas"])
        step("schemas")
        choices.answer(choices.of_text(number), number, found["text_beside_strict_tools"])
        step("texts")
    choices.close()
    figures = found["schemas"].figures
    verdicts = [
        at_most("mask", "median mask, us:", Precise(figures["mask_p50_us"]), Precise(MASK_MICROSECONDS)),
        at_most(
            "choice", "median of what it costs more, us:", Precise(figures["more_p50_us"]), Precise(MORE_MICROSECONDS)
        ),
    ]
    return {"vocab_size": VOCAB_SIZE, **{name: times.figures for name, times in found.items()}}, verdicts
