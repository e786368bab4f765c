"""Where requests come from: schemathesis reads the document and makes some that it allows and some that it forbids."""

import itertools
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase
from schemathesis import Case, GenerationMode
from schemathesis.generation.drivers import CoverageGenerator
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.generation.overrides import Override

from tests.fuzz_http.answer_checks import POSITIVE, mode_of
from tests.fuzz_http.taming import Manner

# A longer one that is valid would measure how fast the model reads; far longer ones that are refused are sent.
MAX_VALID_LETTERS = 20_000
_COVERAGE_SHARE = 0.4
_MANNERS = (*(Manner.TAME, Manner.STREAMED) * 3, Manner.WILD)
# How many of the drawn requests go where; routes without parameters have nothing that could be drawn.
_SHARES = {
    ("chat", GenerationMode.POSITIVE): 0.30,
    ("chat", GenerationMode.NEGATIVE): 0.22,
    ("complete", GenerationMode.POSITIVE): 0.24,
    ("complete", GenerationMode.NEGATIVE): 0.16,
    ("model", GenerationMode.POSITIVE): 0.08,
}
_REST = ("chat", GenerationMode.POSITIVE)
Send = Callable[[Case, Manner], None]


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
