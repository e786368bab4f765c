"""BFCL's questions, and kakeya-nano, which has to call: whatever it draws are valid calls of the functions offered."""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import jsonschema_rs
import openai
import pytest
from openai.types.chat import ChatCompletion
from tokenizers import Tokenizer

from kakeya_http_shim.tools.families import SYNTAXES
from kakeya_shared import installed_models
from tests.clients.bfcl import BfclCase, bounded, cases
from tests.integration.calling_stack import NUM_LANES, base_url, calling_stack
from tests.integration.open_http import MODEL
from tests.integration.processes import Runtime
from tests.integration.schema_answers import answers, parsed
from tests.schemas import Schema

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(3600)]

_CATEGORIES = ("simple_python", "multiple", "parallel", "live_multiple")
_NUM_OF_CATEGORY = 50
_MAX_TOKENS = 256
_NUM_SCHEMAS = int(os.environ.get("KAKEYA_TEST_BFCL_SCHEMAS", "1000"))
# A model of three million weights at temperature 1 seldom ends a number by itself: its bounds say nothing of decimals.
_ENDS = ('"', '",', '"}', '"]', "}", "]", "<|im_end|>")
_BIAS = 8
_LEAST_ENDED = 0.95
_WITH_SCHEMAS = (*_CATEGORIES, "live_simple", "live_parallel", "parallel_multiple")
_MAX_SCHEMA_TOKENS = 512


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with calling_stack(tmp_path_factory.mktemp("bfcl")) as made:
        yield made


def _questions() -> list[BfclCase]:
    """With a longest length of texts and lists: a small model ends a text of qwen3-xml's by chance only."""
    return [case.bounded for category in _CATEGORIES for case in islice(cases(category), _NUM_OF_CATEGORY)]


def _biases() -> dict[str, int]:
    tokenizer = Tokenizer.from_file(str(installed_models.directory(MODEL) / "tokenizer.json"))
    ids = [tokenizer.token_to_id(text) for text in _ENDS]
    return {str(token_id): _BIAS for token_id in ids if token_id is not None}


async def _asked(client: openai.AsyncOpenAI, case: BfclCase, seed: int) -> ChatCompletion:
    messages: Any = case.messages
    tools: Any = case.tools
    return await client.chat.completions.create(
        model=MODEL,
        messages=messages,
        tools=tools,
        tool_choice="required",
        temperature=1.0,
        seed=seed,
        max_tokens=_MAX_TOKENS,
        parallel_tool_calls="parallel" in case.id,
        logit_bias=_biases(),
    )


def _check(case: BfclCase, answer: ChatCompletion) -> bool:
    """Whether it ended; what is called is offered and valid, and what was cut is no call."""
    (choice,) = answer.choices
    calls = [call.function for call in choice.message.tool_calls or () if call.type == "function"]
    for call in calls:
        jsonschema_rs.validate(case.functions[call.name], parsed(call.arguments))
    if answer.usage is None or answer.usage.completion_tokens == _MAX_TOKENS:
        return False
    assert (bool(calls), choice.message.content, choice.finish_reason) == (True, None, "tool_calls"), case.id
    return True


@pytest.mark.parametrize("family", sorted(SYNTAXES))
async def test_forced_calls_are_valid(stack: Runtime, family: str) -> None:
    """All 200 in each family."""
    lanes, ended = asyncio.Semaphore(NUM_LANES), Counter[str]()

    async def ask(client: openai.AsyncOpenAI, number: int, case: BfclCase) -> None:
        async with lanes:
            answer = await _asked(client, case, number)
        ended[case.id.rpartition("_")[0]] += _check(case, answer)

    questions = _questions()
    assert len(questions) == len(_CATEGORIES) * _NUM_OF_CATEGORY
    async with openai.AsyncOpenAI(base_url=base_url(stack, family), api_key="none", max_retries=0) as client:
        await asyncio.gather(*(ask(client, number, case) for number, case in enumerate(questions)))
    print(f"{family}: {ended.total()} of {len(questions)} ended within {_MAX_TOKENS} tokens: {dict(ended)}")
    assert ended.total() >= _LEAST_ENDED * len(questions)


@pytest.mark.parametrize(
    ("bound", "least_ended"), [(lambda schema: schema, 0.4), (bounded, 0.9)], ids=["as they are", "bounded"]
)
async def test_answers_are_of_the_schemas_of_functions(
    stack: Runtime, bound: Callable[[Schema], Schema], least_ended: float
) -> None:
    """A thousand that people have written; of most of them texts and numbers have no longest length.

    So what is cut stands within a text, which a small model does not end. White space, for one, is not what keeps it.
    """
    of_functions = (bound(each) for case in cases(*_WITH_SCHEMAS) for each in case.functions.values())
    distinct = {json.dumps(schema, sort_keys=True): schema for schema in of_functions}
    asked = list(islice(distinct.values(), _NUM_SCHEMAS))
    got = await answers(stack.address, asked, max_tokens=_MAX_SCHEMA_TOKENS)
    print(
        f"{got.num_ended} of {len(asked)} ended within {_MAX_SCHEMA_TOKENS} tokens; of {len(got.cut)} that were cut "
        f"{got.num_within_text} stand within a text"
    )
    assert len(asked) == _NUM_SCHEMAS
    assert got.num_ended >= least_ended * len(asked)
    assert bound is bounded or got.num_within_text >= 0.95 * len(got.cut)
