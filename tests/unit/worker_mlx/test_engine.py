"""The engine on the MLX backend: nothing in it knows which backend it has."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kakeya_worker.engine.engine import Engine
from kakeya_worker.program import load_engine
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
