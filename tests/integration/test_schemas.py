"""Schemas drawn at random, kakeya-nano at temperature 1: what ends is valid, and what is cut is the beginning of that.

`make test-schemas` draws a thousand.
"""

import os
from collections.abc import Iterator

import pytest

from kakeya_shared import installed_models
from tests.integration.open_http import MODEL
from tests.integration.processes import Runtime, runtime
from tests.integration.schema_answers import answers
from tests.schemas import schema

NUM_SCHEMAS = int(os.environ.get("KAKEYA_TEST_SCHEMAS", "24"))
MAX_TOKENS = 512
LEAST_ENDED = 0.9


@pytest.fixture(scope="module")
def nano(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """In exact mode, as it is where nobody says otherwise."""
    with runtime(installed_models.directory(MODEL), tmp_path_factory.mktemp("logs"), num_workers=1) as made:
        yield made


@pytest.mark.timeout(3600)
async def test_answers_are_of_their_schemas(nano: Runtime) -> None:
    asked = [schema(number) for number in range(NUM_SCHEMAS)]
    ended = (await answers(nano.address, asked, max_tokens=MAX_TOKENS)).num_ended
    print(f"{ended} of {NUM_SCHEMAS} ended within {MAX_TOKENS} tokens")
    assert ended >= LEAST_ENDED * NUM_SCHEMAS, f"{ended} of {NUM_SCHEMAS} ended"
