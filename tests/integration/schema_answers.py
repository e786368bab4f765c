"""Answers of a model at temperature 1 to JSON schemas: what ends is judged, and what is cut, too."""

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import jsonschema_rs
from tokenizers import Tokenizer

import kakeya
from kakeya import Grammar, StopReason
from kakeya_shared import installed_models
from kakeya_worker.grammars import grammar as in_worker
from kakeya_worker.grammars.grammars import Grammars
from tests.integration.open_http import MODEL
from tests.schemas import Schema

NUM_AT_ONCE = 8
_PROMPT = "<|im_start|>user\nAnswer in JSON.<|im_end|>\n<|im_start|>assistant\n"
_EOS = "<|im_end|>"


def parsed(text: str) -> Any:
    """JSON; of a number that is beyond floats, the sign and the kind."""
    return json.loads(text, parse_float=lambda number: max(-sys.float_info.max, min(sys.float_info.max, float(number))))


class Answers(NamedTuple):
    """How many end by themselves, and the texts of those that were cut."""

    num_ended: int
    cut: list[str]

    @property
    def num_within_text(self) -> int:
        """Of those that were cut: the rest stands in a number, a list or white space."""
        return sum(_TEXTS.sub("", text).count('"') for text in self.cut)


_TEXTS = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
"""Whole ones, of JSON."""


async def answers(address: str, asked: Sequence[Schema], *, max_tokens: int) -> Answers:
    """The test fails where one that ends is none of its schema's, or one that is cut is not the beginning of such."""
    directory = installed_models.directory(MODEL)
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    prompt, eos = tokenizer.encode(_PROMPT, add_special_tokens=False).ids, tokenizer.token_to_id(_EOS)
    assert eos is not None
    grammars = Grammars(directory / "tokenizer.json", "", tokenizer.get_vocab_size())
    free_lanes, ended, cut = asyncio.Semaphore(NUM_AT_ONCE), 0, list[str]()

    async def answer(client: kakeya.AsyncClient, number: int, schema: Schema) -> None:
        nonlocal ended
        form = Grammar.json_schema(schema)
        async with free_lanes, await client.create_session(eos_token_ids=[eos]) as session:
            generation = session.turn(prompt, max_tokens=max_tokens, temperature=1.0, seed=number, grammar=form)
            token_ids = await generation.all()
        assert generation.done is not None
        if generation.done.stop_reason is StopReason.EOS:
            ended += 1
            value = parsed(tokenizer.decode(token_ids))
            assert jsonschema_rs.is_valid(schema, value, validate_formats=True), (number, schema, value)
        else:
            cut.append(tokenizer.decode(token_ids))
            held = in_worker.Grammar("json_schema", (form.wire.json_schema,))
            await grammars.constraint(held, {eos}, token_ids)  # raises where it is none

    async with kakeya.AsyncClient(address) as client:
        await asyncio.gather(*(answer(client, number, schema) for number, schema in enumerate(asked)))
    grammars.close(60)
    return Answers(ended, cut)
