"""Generates with drafts of a second model: the same tokens, in fewer steps where the models agree."""

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from structlog.testing import capture_logs

from kakeya_worker.conformance.tools import drafts
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.lane_state import ForkSource
from kakeya_worker.engine.lanes.results import GenerateResult
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.speculation.draft_model import DraftModel
from kakeya_worker.engine.speculation.names import DRAFT_MODEL
from kakeya_worker.engine.speculation.proposers import Proposers
from kakeya_worker.torch_backend import TorchVerifier
from tests.layers import save_fewer_layers
from tests.unit.worker.engine_calls import (
    NUM_LANES,
    SINK,
    TIMEOUT,
    WINDOW,
    engines_in_turn,
    open_session,
    start_append,
    start_generate,
)

VOCABULARY = 1024
GEOMETRY = LaneGeometry(SINK, WINDOW, chunk=32)
DRAWN: dict[str, Any] = {"seed": 5, "temperature": 1.0, "top_k": 40}
ASKED: dict[str, dict[str, Any]] = {
    "greedy": {},
    "drawn": DRAWN,
    "penalties": {"presence_penalty": 1.0, "frequency_penalty": 0.7, "repetition_penalty": 1.3},
    "bias": {**DRAWN, "logit_bias": ((77, 3.0), (99, -100.0)), "min_p": 0.01},
    "ends-masked-at-first": {**DRAWN, "eos": set(range(0, 1024, 6)), "min_tokens": 30},
    "ends-ignored": {**DRAWN, "eos": set(range(0, 1024, 6)), "ignores_eos": True},
}


def _loaded(checkpoint: Path) -> TorchVerifier:
    return TorchVerifier(str(checkpoint), weights="int8", kv_dtype="auto", num_threads=1, cache_directory=None)


@pytest.fixture(scope="module")
def exact(random_checkpoint: Path) -> TorchVerifier:
    return _loaded(random_checkpoint)


class Watched(TorchVerifier):
    """A draft model; a test may look at its steps, and break them."""

    def __init__(self, checkpoint: Path) -> None:
        super().__init__(str(checkpoint), weights="int8", kv_dtype="auto", num_threads=1, cache_directory=None)
        self.threads: set[str] = set()
        self.rows: list[Sequence[Row]] = []
        self.before: Callable[[], object] = lambda: None
        self.lie: Callable[[NDArray[np.float32]], NDArray[np.float32]] = lambda logits: logits

    def allocate(self, geometry: LaneGeometry, num_lanes: int) -> None:
        super().allocate(geometry, num_lanes)
        self.poison()

    def forward(self, rows: Sequence[Row]) -> None:
        self.threads.add(threading.current_thread().name)
        self.rows.append(rows)
        self.before()
        super().forward(rows)

    def logits(self, lanes: Sequence[int]) -> NDArray[np.float32]:
        return self.lie(super().logits(lanes))


@pytest.fixture
def same(random_checkpoint: Path) -> Watched:
    """The model that is drafted for, once more."""
    return Watched(random_checkpoint)


@pytest.fixture
def smaller(random_checkpoint: Path, tmp_path: Path) -> Watched:
    return Watched(save_fewer_layers(random_checkpoint, tmp_path / "smaller", 2))


Start = Callable[..., Engine]


@pytest.fixture
def start(exact: TorchVerifier) -> Iterator[Start]:
    """See `engines_in_turn`."""
    with engines_in_turn(exact, GEOMETRY) as start:

        def started(draft: Watched | None, **waits: Any) -> Engine:
            if draft is None:
                return start(None)
            model = DraftModel(draft, GEOMETRY, NUM_LANES, VOCABULARY)
            patience = {"late_seconds": drafts.PATIENT_SECONDS, **waits}
            return start(Proposers(DRAFT_MODEL, draft_model=model, **patience))

        yield started


def answer(
    engine: Engine, max_tokens: int = 60, session_id: str = "s", length: int = 30, **asked: Any
) -> tuple[list[int], GenerateResult]:
    generate, tokens = start_generate(engine, length, max_tokens, session_id=session_id, **asked)
    result = generate.future.result(TIMEOUT)
    return tokens.ids, result


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_what_the_same_model_says_comes(start: Start, same: Watched, asked: dict[str, Any]) -> None:
    """Whatever the session's way to choose is: it is drafted by the same draw."""
    expected, _ = answer(start(None), **asked)
    found, result = answer(start(same), **asked)
    assert found == expected
    assert len(found) >= 30
    assert result.num_accepted == result.num_drafted > len(found) / 2
    assert same.threads == {f"{DRAFT_MODEL}-0"}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_what_a_smaller_model_says_changes_nothing(start: Start, smaller: Watched, asked: dict[str, Any]) -> None:
    expected, _ = answer(start(None), **asked)
    found, result = answer(start(smaller), **asked)
    assert found == expected
    assert result.num_drafted > result.num_accepted


def test_sessions_are_drafted_for_together(start: Start, same: Watched) -> None:
    found = []
    for draft in (None, same):
        engine = start(draft)
        running = [
            start_generate(engine, 30, 60, session_id=session_id, seed=seed, temperature=1.0, top_k=40)
            for seed, session_id in enumerate("rst")
        ]
        for generate, _ in running:
            generate.future.result(TIMEOUT)
        found.append([tokens.ids for _, tokens in running])
    assert found[0] == found[1]
    assert max(map(len, same.rows)) == 3
    assert all(generate.num_accepted > 20 for generate, _ in running)


def test_it_catches_up_with_an_append(start: Start, same: Watched) -> None:
    """As far as a lane keeps it, a chunk a step at most, and it drafts nothing meanwhile."""
    found = []
    for draft in (None, same):
        engine = start(draft)
        start_append(engine, 30, 200).future.result(TIMEOUT)
        same.rows.clear()
        found.append(answer(engine, 60, length=230))
    assert found[0][0] == found[1][0]
    rows = [row for (row,) in same.rows]
    assert [len(row.token_ids) for row in rows[:3]] == [32, 32, 7]  # sinks and window, and what was chosen since
    assert all(len(row.token_ids) <= 2 for row in rows[3:])
    # Its lane begins with what is kept, so that it sees a little less than the model itself.
    assert found[1][1].num_accepted > 20


def test_it_goes_on_after_a_rewind_a_fork_and_a_restore(start: Start, same: Watched) -> None:
    engine = start(None)
    whole, _ = answer(engine, 30)
    rewound, _ = answer_after_rewind(engine)
    engine = start(same)
    assert answer(engine, 30)[0] == whole
    engine.close("t", 1).result(TIMEOUT)
    engine.fork("t", 1, ForkSource("s", 1, 60)).result(TIMEOUT)
    snapshot = engine.take_snapshot("s", 1)
    found, result = answer_after_rewind(engine)
    assert found == rewound
    assert result.num_accepted == result.num_drafted > 3
    engine.close("r", 1).result(TIMEOUT)
    engine.restore("r", 1, [snapshot])
    engine.close("s", 1).result(TIMEOUT)
    of_restored, result = answer(engine, 8, "r", 60)
    assert result.num_accepted == result.num_drafted > 0
    of_fork, result = answer(engine, 8, "t", 60)
    assert result.num_accepted == result.num_drafted > 0
    assert of_fork == of_restored


def answer_after_rewind(engine: Engine) -> tuple[list[int], GenerateResult]:
    engine.rewind("s", 1, 60, 45).result(TIMEOUT)
    return answer(engine, 15, length=45, **DRAWN)


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(lambda logits: np.random.default_rng(0).random(logits.shape, np.float32), id="at-random"),
        pytest.param(lambda logits: logits[:, :100], id="of-fewer-tokens"),
        pytest.param(lambda logits: np.pad(logits, ((0, 0), (0, 7)), constant_values=1e9), id="of-more-tokens"),
    ],
)
def test_lies_change_nothing(start: Start, same: Watched, lie: Any) -> None:
    expected, _ = answer(start(None), **DRAWN)
    same.lie = lie
    with capture_logs() as logs:
        found, result = answer(start(same), **DRAWN)
    assert found == expected
    assert result.num_drafted > 0
    assert [line for line in logs if line["log_level"] == "error"] == []


def _no_numbers(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.full_like(logits, np.nan)


def _no_rows(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    return logits[:0]


def _raise(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    raise ZeroDivisionError("of a backend")


@pytest.mark.parametrize("lie", [_no_numbers, _no_rows, _raise])
def test_one_that_fails_drafts_no_more_for_those_sessions(start: Start, same: Watched, lie: Any) -> None:
    expected, _ = answer(start(None), 20)
    engine = start(same)
    same.lie = lie
    with capture_logs() as logs:
        running = [start_generate(engine, 30, 20, session_id=session_id) for session_id in "st"]
        for generate, tokens in running:
            assert generate.future.result(TIMEOUT).num_drafted == 0
            assert tokens.ids == expected
    failed = [line["proposer"] for line in logs if line["log_level"] == "error"]
    assert failed == [DRAFT_MODEL] * 2
    same.lie = lambda logits: logits
    found, result = answer(engine, 20, "r")
    assert found == expected
    assert result.num_accepted > 0


def test_one_that_hangs_is_given_up(start: Start, same: Watched) -> None:
    expected, _ = answer(start(None))
    let_go = threading.Event()
    engine = start(same, late_seconds=0.001, hung_seconds=0.0)
    same.before = lambda: let_go.wait(TIMEOUT)
    try:
        with capture_logs() as logs:
            assert answer(engine)[0] == expected
            assert answer(engine, session_id="t")[0] == expected
        assert len([line for line in logs if line["log_level"] == "error"]) == 1
        assert len(same.rows) <= 1
    finally:
        let_go.set()


def test_its_lanes_are_part_of_what_is_reserved(start: Start, same: Watched) -> None:
    plain, engine = start(None).lanes.totals(), start(same)
    totals = engine.lanes.totals()
    of_slots = GEOMETRY.num_slots * same.facts.kv_bytes_per_token
    assert of_slots < totals.lane_bytes - plain.lane_bytes < of_slots + 10 * GEOMETRY.num_slots
    assert totals.slab_bytes == NUM_LANES * totals.lane_bytes
    drafter = engine.lanes.occupant("s").drafter
    assert drafter is not None
    assert drafter.memory_bytes == totals.lane_bytes - plain.lane_bytes


def test_only_those_draft_who_ask_for_it(exact: TorchVerifier, same: Watched) -> None:
    model = DraftModel(same, GEOMETRY, NUM_LANES, VOCABULARY)
    proposers = Proposers("none", draft_model=model, late_seconds=drafts.PATIENT_SECONDS)
    assert {"none", "ngram", DRAFT_MODEL} <= proposers.names
    assert DRAFT_MODEL not in Proposers().names
    engine = Engine(exact, GEOMETRY, NUM_LANES, step_tokens=64, proposers=proposers)
    engine.start()
    try:
        numbers = []
        for session_id, speculation in (("s", ""), ("t", DRAFT_MODEL)):
            open_session(engine, session_id, speculation=speculation)
            start_append(engine, 0, 30, session_id).future.result(TIMEOUT)
            numbers.append(answer(engine, 30, session_id)[1].num_accepted)
        assert numbers[0] == 0 < numbers[1]
    finally:
        engine.shut_down()
