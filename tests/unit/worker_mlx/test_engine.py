"""The engine on the MLX backend: nothing in it knows which backend it has."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kakeya_worker.conformance.tools.tokenizer_files import write_tokenizer
from kakeya_worker.engine.costs.step_costs import StepMeasures
from kakeya_worker.engine.engine import Engine
from kakeya_worker.loading import load_engine
from kakeya_worker.settings import WorkerSettings
from tests.unit.worker.engine_calls import TIMEOUT, open_session, start_append, start_generate


@pytest.fixture
def engine(random_checkpoint: Path) -> Iterator[Engine]:
    """A running engine, as a worker makes it."""
    settings = WorkerSettings.parse(
        ["--model", str(random_checkpoint), "--backend", "mlx", "--lanes", "3", "--sink", "4", "--window", "64"]
    )
    engine = load_engine(settings)
    engine.start()
    yield engine
    engine.shut_down()
    assert not engine.crashed.done()


def generated(engine: Engine, session_id: str, length: int, max_tokens: int = 32, **sampling: float) -> list[int]:
    generate, tokens = start_generate(engine, length, max_tokens, session_id=session_id, **sampling)
    generate.future.result(TIMEOUT)
    return tokens.ids


def test_a_session_says_the_same_alone_and_in_company(engine: Engine) -> None:
    for session_id in ("alone", "one", "other"):
        open_session(engine, session_id)
        if session_id == "alone":
            start_append(engine, 0, 100, session_id).future.result(TIMEOUT)
            expected = generated(engine, "alone", 100, seed=7, temperature=1.0)
    appends = [start_append(engine, 0, 100, "one"), start_append(engine, 0, 90, "other")]
    for append in appends:
        append.future.result(TIMEOUT)
    beside, _ = start_generate(engine, 90, 40, session_id="other", seed=8, temperature=1.0)
    assert generated(engine, "one", 100, seed=7, temperature=1.0) == expected
    beside.future.result(TIMEOUT)
    assert len(set(expected)) > 16


def test_the_worker_reports_the_bytes_that_it_holds(engine: Engine) -> None:
    opened = open_session(engine, "s")
    start_append(engine, 0, 200, "s").future.result(TIMEOUT)
    state = {report.session_id: report.state for report in engine.lanes.reports()}["s"]
    assert state.kv_live_bytes == 68 * 4 * 2 * 32 * 4 * 2
    assert opened


def test_a_draft_model_says_it_sooner(random_checkpoint: Path, tmp_path: Path, engine: Engine) -> None:
    """It computes on a thread of its own, while the engine's waits."""
    shutil.copytree(random_checkpoint, tmp_path / "model")
    write_tokenizer(tmp_path / "model")
    model = str(tmp_path / "model")
    flags = ["--model", model, "--draft-model", model, "--speculation", "draft-model", "--backend", "mlx"]
    drafting = load_engine(WorkerSettings.parse([*flags, "--lanes", "3", "--sink", "4", "--window", "64"]))
    assert drafting.proposers.draft_model is not None
    drafting.proposers.draft_model._measures = StepMeasures()  # as if its passes took no time: they do not pay here
    drafting.start()
    try:
        found = []
        for each in (engine, drafting):
            open_session(each)
            start_append(each, 0, 40).future.result(TIMEOUT)
            generate, tokens = start_generate(each, 40, 60)
            result = generate.future.result(TIMEOUT)
            found.append(tokens.ids)
    finally:
        drafting.shut_down()
    assert not drafting.crashed.done()
    assert found[0] == found[1]
    assert result.num_accepted == result.num_drafted > 0
