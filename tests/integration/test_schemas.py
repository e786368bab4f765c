"""Schemas drawn at random, kakeya-nano at temperature 1: what ends is valid, and what is cut is the beginning of that.

`make test-schemas` draws a thousand.
"""

import asyncio
import json
import os
from collections.abc import Iterator

import jsonschema_rs
import pytest
from tokenizers import Tokenizer

import kakeya
from kakeya import Grammar, StopReason
from kakeya_shared import installed_models
from kakeya_worker.grammars import grammar as in_worker
from kakeya_worker.grammars.grammars import Grammars
from tests.integration.processes import Runtime, runtime
from tests.schemas import Schema, schema

MODEL = "kakeya-nano"
NUM_SCHEMAS = int(os.environ.get("KAKEYA_TEST_SCHEMAS", "24"))
MAX_TOKENS = 512
LEAST_ENDED = 0.9
PROMPT = "<|im_start|>user\nAnswer in JSON.<|im_end|>\n<|im_start|>assistant\n"
EOS = "<|im_end|>"


@pytest.fixture(scope="module")
def nano(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """In exact mode, as it is where nobody says otherwise."""
    with runtime(installed_models.directory(MODEL), tmp_path_factory.mktemp("logs"), num_workers=1) as made:
        yield made


@pytest.mark.timeout(3600)
async def test_answers_are_of_their_schemas(nano: Runtime) -> None:
    directory = installed_models.directory(MODEL)
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    prompt, eos = tokenizer.encode(PROMPT, add_special_tokens=False).ids, tokenizer.token_to_id(EOS)
    grammars = Grammars(directory / "tokenizer.json", "", tokenizer.get_vocab_size())
    assert eos is not None
    free_lanes = asyncio.Semaphore(8)
    num_ended = 0

    async def answer(client: kakeya.AsyncClient, number: int, asked: Schema) -> None:
        nonlocal num_ended
        async with free_lanes, await client.create_session(eos_token_ids=[eos]) as session:
            form = Grammar.json_schema(asked)
            generation = session.turn(prompt, max_tokens=MAX_TOKENS, temperature=1.0, seed=number, grammar=form)
            token_ids = await generation.all()
        assert generation.done is not None
        if generation.done.stop_reason is StopReason.EOS:
            num_ended += 1
            value = json.loads(tokenizer.decode(token_ids))
            assert jsonschema_rs.is_valid(asked, value, validate_formats=True), (number, value)
        else:
            # Raises where it is not the beginning of an answer.
            held = in_worker.Grammar("json_schema", (form.wire.json_schema,))
            await grammars.constraint(held, {eos}, token_ids)

    async with kakeya.AsyncClient(nano.address) as client:
        await asyncio.gather(*(answer(client, number, schema(number)) for number in range(NUM_SCHEMAS)))
    grammars.close(60)
    assert num_ended >= LEAST_ENDED * NUM_SCHEMAS, f"{num_ended} of {NUM_SCHEMAS} ended"
