"""Where requests come from: schemathesis reads the document and makes some that it allows and some that it forbids."""

import itertools
import json
import random
import warnings
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase
from schemathesis import Case, GenerationMode
from schemathesis.generation.drivers import CoverageGenerator
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.generation.overrides import Override

from tests.integration.open_http import MODEL
from tests.soak.fuzz_http.answer_checks import POSITIVE, mode_of
from tests.soak.fuzz_http.stream_checks import RESPONSES

MAX_CHOICES = 4
"""What the shim is told to give at most, as a number that the document says."""
_MAX_TOKENS = 4
_LENGTHS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
# A longer one that is valid would measure how fast the model reads; far longer ones that are refused are sent.
MAX_VALID_LETTERS = 20_000
_COVERAGE_SHARE = 0.4


class Manner(Enum):
    """How a valid body is sent."""

    TAME = "its token ids are the model's"
    STREAMED = "so, and it asks for a stream, which few are drawn to do"
    WILD = "as it was drawn"


_MANNERS = (*(Manner.TAME, Manner.STREAMED) * 3, Manner.WILD)
# How many of the drawn requests go where; routes without parameters have nothing that could be drawn.
_SHARES = {
    ("chat", GenerationMode.POSITIVE): 0.16,
    ("chat", GenerationMode.NEGATIVE): 0.12,
    ("createResponse", GenerationMode.POSITIVE): 0.10,
    ("createResponse", GenerationMode.NEGATIVE): 0.06,
    ("createConversation", GenerationMode.POSITIVE): 0.02,
    ("addConversationItems", GenerationMode.NEGATIVE): 0.02,
    ("complete", GenerationMode.POSITIVE): 0.12,
    ("complete", GenerationMode.NEGATIVE): 0.06,
    ("messages", GenerationMode.POSITIVE): 0.08,
    ("messages", GenerationMode.NEGATIVE): 0.06,
    ("ollamaChat", GenerationMode.POSITIVE): 0.08,
    ("ollamaChat", GenerationMode.NEGATIVE): 0.04,
    ("ollamaGenerate", GenerationMode.POSITIVE): 0.04,
    ("model", GenerationMode.POSITIVE): 0.06,
}
_REST = ("chat", GenerationMode.POSITIVE)
Send = Callable[[Case, Manner], None]


def readable(document: dict[str, Any]) -> dict[str, Any]:
    """A document as schemathesis can read it.

    Of rules between fields it makes all combinations, and gives up where these are too many, as those of a chat are.
    `broken_rules` knows the one that is left out.
    """
    schemas = document["components"]["schemas"]
    chat = schemas["ChatRequest"]
    rules = [rule for rule in chat["allOf"] if "top_logprobs" not in json.dumps(rule)]
    schemas = {**schemas, "ChatRequest": {**chat, "allOf": rules}}
    return {**document, "components": {**document["components"], "schemas": schemas}}


def send_all(schema: Any, num_cases: int, seed: int, send: Send) -> None:
    """Sends so many cases, and each operation at least once: those at the borders of the document, then drawn ones."""
    operations = {result.ok().definition.raw["operationId"]: result.ok() for result in schema.get_all_operations()}
    borders = _borders(operations, int(num_cases * _COVERAGE_SHARE), random.Random(seed))
    for case in borders:
        send(case, Manner.TAME)
    sizes = {kind: int((num_cases - len(borders)) * share) for kind, share in _SHARES.items()}
    sizes[_REST] += num_cases - len(borders) - sum(sizes.values())
    for number, ((name, mode), size) in enumerate(sizes.items()):
        _draw(operations[name], mode, size, seed + number, send)


def _borders(operations: dict[str, Any], most: int, chance: random.Random) -> list[Case]:
    """What schemathesis calls coverage, or a part of it that has something of every operation."""
    by_operation = [list(_of_operation(operation)) for operation in operations.values()]
    every = [case for cases in by_operation for case in cases]
    if len(every) <= most:
        return every
    first = [next(case for case in cases if mode_of(case) == POSITIVE) for cases in by_operation]
    return first + chance.sample([case for case in every if case not in first], max(0, most - len(first)))


def _of_operation(operation: Any) -> Iterator[Case]:
    cases = CoverageGenerator(
        operation=operation,
        generation_modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE],
        generation_config=operation.schema.config.generation,
        auth_storage=None,
        override=Override(query={}, headers={}, cookies={}, path_parameters={}, body={}),
        feedback=FeedbackSources(),
    )
    for case in cases:
        if mode_of(case) != POSITIVE or len(repr(case.body)) <= MAX_VALID_LETTERS:
            yield case


def _draw(operation: Any, mode: GenerationMode, number: int, seed: int, send: Send) -> None:
    if number < 1:
        return

    manners = itertools.cycle(_MANNERS)

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=number,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def each(case: Case) -> None:
        send(case, next(manners))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of expressions that Python would write otherwise
        each()


def tamed(body: dict[str, Any], manner: Manner, vocab_size: int, path: str) -> dict[str, Any]:
    """A valid body as it is sent."""
    tame = bounded(body)
    if path == RESPONSES and manner is not Manner.WILD and body.get("input") is None:
        tame["input"] = "Hello"  # which few are drawn with, and nothing is answered without
    if manner is Manner.STREAMED:
        tame["stream"] = True
    return tame if manner is Manner.WILD else _of_the_model(tame, vocab_size)


def bounded(body: dict[str, Any]) -> dict[str, Any]:
    """The same with short answers, and few: numbers that are allowed become smaller ones that are allowed too."""
    tame = dict(body)
    for name in _LENGTHS:
        if _is_integer(body.get(name)) and _MAX_TOKENS < body[name] < 1 << 32:
            tame[name] = _MAX_TOKENS
    options = body.get("options")
    if isinstance(options, dict) and _is_integer(options.get("num_predict")):
        tame["options"] = {**options, "num_predict": min(options["num_predict"], _MAX_TOKENS)}
    if _is_integer(body.get("min_tokens")) and 1 < body["min_tokens"] < 1 << 32:
        tame["min_tokens"] = 1
    if _is_integer(body.get("n")) and 2 < body["n"] <= MAX_CHOICES:
        tame["n"] = 2
        if body.get("best_of") == body["n"]:
            tame["best_of"] = 2
    return tame


def _of_the_model(body: dict[str, Any], vocab_size: int) -> dict[str, Any]:
    """A valid body that names the model and tokens of it, which the document cannot demand."""
    tame = {**body, "model": MODEL}
    if body.get("logit_bias"):
        tame["logit_bias"] = {str(int(name) % vocab_size): bias for name, bias in body["logit_bias"].items()}
    for name in ("prompt", "tokens", "stop_token_ids"):
        if body.get(name) is not None:
            tame[name] = _known(body[name], vocab_size)
    for name in ("previous_response_id", "conversation"):  # a name that is drawn is of nothing that is there
        tame.pop(name, None)
    return tame


def _known(prompt: Any, vocab_size: int) -> Any:
    if isinstance(prompt, list):
        return [_known(part, vocab_size) for part in prompt]
    return prompt if isinstance(prompt, str) else prompt % vocab_size


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
