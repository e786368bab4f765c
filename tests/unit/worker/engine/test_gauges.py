"""The slab as a reader sees it, between two steps."""

import math
import threading
from concurrent.futures import Future

import pytest

from kakeya_shared.metrics.meters import Meters
from kakeya_worker.engine import gauges
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.gauges import SlabGauges, SlabNow
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.metrics import WorkerMetrics
from kakeya_worker.torch_backend import TorchVerifier
from tests.scrape import Exposition
from tests.unit.worker.engine_calls import (
    BYTES,
    NUM_LANES,
    NUM_SLOTS,
    SINK,
    TIMEOUT,
    WINDOW,
    end_of_step,
    open_session,
    start_append,
    start_generate,
)


def read(meters: Meters) -> Exposition:
    return Exposition.of(meters.exposition()[0].decode())


def test_the_sum_is_that_of_the_lanes_whatever_runs(engine: Engine) -> None:
    meters = Meters()
    meters.before_reading(SlabGauges(meters).refresher(engine))
    open_session(engine, "still")
    start_append(engine, 0, 5, "still").future.result(TIMEOUT)
    open_session(engine, "busy")
    start_append(engine, 0, 1, "busy").future.result(TIMEOUT)
    generate, tokens = start_generate(engine, 1, 1_000_000, session_id="busy", wanted=3)
    assert tokens.enough.wait(TIMEOUT)
    sums = set()
    for _ in range(20):
        seen = read(meters)
        lanes = seen.by_label("kakeya_worker_lane_kv_live_bytes", "lane")
        assert lanes.keys() == {"0", "1"}
        assert lanes["0"] == 5 * BYTES
        assert seen.value("kakeya_worker_kv_live_bytes") == sum(lanes.values())
        sums.add(sum(lanes.values()))
    engine.cancel(generate)
    assert generate.future.exception(TIMEOUT) is not None
    assert max(sums) <= (5 + SINK + WINDOW) * BYTES
    lane_bytes = NUM_SLOTS * BYTES
    assert seen.value("kakeya_worker_kv_reserved_bytes") == 2 * lane_bytes
    assert seen.value("kakeya_worker_kv_free_bytes") == (NUM_LANES - 2) * lane_bytes
    assert (seen.value("kakeya_worker_lanes", state="used"), seen.value("kakeya_worker_lanes", state="free")) == (2, 1)
    engine.close("still", 1).result(TIMEOUT)
    assert read(meters).by_label("kakeya_worker_lane_kv_live_bytes", "lane").keys() == {"1"}


def test_operations_are_counted_by_kind(engine: Engine) -> None:
    meters = Meters()
    meters.before_reading(SlabGauges(meters).refresher(engine))
    open_session(engine)
    start_append(engine, 0, 1).future.result(TIMEOUT)
    generate, tokens = start_generate(engine, 1, 1_000, wanted=64)  # nobody reads
    assert tokens.enough.wait(TIMEOUT)
    assert read(meters).by_label("kakeya_worker_operations", "kind") == {"append": 0, "generate": 1, "paused": 1}
    engine.cancel(generate)
    generate.future.exception(TIMEOUT)
    assert read(meters).by_label("kakeya_worker_operations", "kind") == {"append": 0, "generate": 0, "paused": 0}


class Hanging:
    def slab_now(self) -> "Future[SlabNow]":
        return Future()


def test_a_step_that_does_not_end_leaves_a_gap(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "_STEP_SECONDS", 0.01)
    meters = Meters()
    slab = SlabGauges(meters)
    meters.before_reading(slab.refresher(engine))
    meters.before_reading(slab.refresher(Hanging()))
    open_session(engine)
    seen = read(meters)
    assert math.isnan(seen.value("kakeya_worker_kv_live_bytes"))
    assert not seen.values("kakeya_worker_lane_kv_live_bytes")
    assert not seen.values("kakeya_worker_lanes")


def test_an_engine_that_has_ended_is_still_read(verifier: TorchVerifier) -> None:
    ended = Engine(verifier, LaneGeometry(SINK, WINDOW, chunk=32), NUM_LANES, step_tokens=64)
    ended.start()
    ended.shut_down()
    assert ended.slab_now().result(TIMEOUT).num_lanes == NUM_LANES


def test_steps_are_counted_with_what_they_committed(verifier: TorchVerifier) -> None:
    metrics = WorkerMetrics(Meters())
    engine = Engine(verifier, LaneGeometry(SINK, WINDOW, chunk=32), NUM_LANES, step_tokens=64, metrics=metrics)
    engine.start()
    try:
        open_session(engine)
        start_append(engine, 0, 70).future.result(TIMEOUT)  # 32, 32 and 6: two have left the window then
        generate, _ = start_generate(engine, 70, 5)
        generate.future.result(TIMEOUT)
        end_of_step(engine, 75)
    finally:
        engine.shut_down()
    seen = read(metrics.meters)
    assert seen.value("kakeya_worker_prefilled_tokens_total") == 70
    assert seen.value("kakeya_worker_generated_tokens_total") == 5
    assert seen.value("kakeya_worker_forgotten_tokens_total") == 75 - (SINK + WINDOW)
    assert seen.value("kakeya_worker_step_seconds_count") == seen.value("kakeya_worker_step_rows_sum") == 3 + 5
    assert seen.value("kakeya_worker_prefill_token_seconds_count") == 1
    assert seen.value("kakeya_worker_failed_rows_total") == 0


def test_a_step_that_fails_is_counted(verifier: TorchVerifier, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = WorkerMetrics(Meters())
    engine = Engine(verifier, LaneGeometry(SINK, WINDOW, chunk=32), NUM_LANES, step_tokens=64, metrics=metrics)
    engine.start()
    done = threading.Event()
    try:
        open_session(engine)

        def fail(rows: object) -> None:
            done.set()
            raise RuntimeError("a bug")

        monkeypatch.setattr(verifier, "forward", fail)
        assert start_append(engine, 0, 3).future.exception(TIMEOUT) is not None
        assert done.is_set()
        end_of_step(engine, 0)
    finally:
        engine.shut_down()
    seen = read(metrics.meters)
    assert seen.value("kakeya_worker_failed_rows_total") == 1
    assert seen.value("kakeya_worker_prefilled_tokens_total") == 0
