"""The memory of the lane that is taken next, and pages that are made before they are written to."""

import mmap
import re
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.torch_backend import TorchVerifier
from kakeya_worker.torch_backend.numerics import BFLOAT16
from kakeya_worker.torch_backend.slab import Slab, ask_for_huge_pages, populate
from tests.unit.worker.engine_calls import NUM_LANES, SINK, TIMEOUT, WINDOW, open_session

_ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for pages")
_TENSOR_BYTES = 256 * mmap.PAGESIZE


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@_ON_LINUX
def test_pages_are_made_and_what_is_in_them_stays() -> None:
    lanes = torch.frombuffer(mmap.mmap(-1, 4 * _TENSOR_BYTES), dtype=torch.uint8).reshape(4, -1)
    lanes[1, 5] = 7
    before = resident_bytes()
    assert populate(lanes[1])
    assert _TENSOR_BYTES // 2 < resident_bytes() - before < 2 * _TENSOR_BYTES
    assert lanes[1].sum() == 7
    assert populate(lanes[1, 10:20]), "it need not begin with a page"


def has_huge_pages() -> bool:
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return setting.exists() and "[never]" not in setting.read_text()


def huge_bytes() -> int:
    """Of this process, in huge pages."""
    kilobytes = re.findall(r"^AnonHugePages: +(\d+) kB$", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)
    return sum(map(int, kilobytes)) << 10


@_ON_LINUX
@pytest.mark.skipif(not has_huge_pages(), reason="this system gives no huge pages to programs")
def test_a_large_slab_lies_in_huge_pages_and_a_small_one_does_not() -> None:
    geometry, before = LaneGeometry(sink=4, window=4092, chunk=128), huge_bytes()
    large = slab_of(geometry, head_dim=128)
    large.populate_lane(1)
    lane_bytes = 2 * large.keys[0][1].nbytes
    assert huge_bytes() - before > lane_bytes // 2
    with_large = huge_bytes()
    small = slab_of(LaneGeometry(sink=4, window=60, chunk=16), head_dim=64)
    small.populate_lane(1)
    assert huge_bytes() == with_large
    assert not ask_for_huge_pages(small.keys[0])


def slab_of(geometry: LaneGeometry, *, head_dim: int) -> Slab:
    return Slab(
        geometry,
        2,
        num_layers=1,
        num_kv_heads=8,
        head_dim=head_dim,
        hidden_size=64,
        kv_type=BFLOAT16,
        hidden_dtype=torch.float32,
    )


def test_a_system_that_does_not_know_how_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not populate(torch.empty(3))
    assert not ask_for_huge_pages(torch.empty(1 << 20))


class TestLaneAhead:
    @pytest.fixture
    def populated(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Lanes, in their order, whose memory was asked for."""
        found: list[int] = []
        whole = TorchVerifier.populate_lane

        def populate_lane(self: TorchVerifier, lane: int) -> None:
            assert threading.current_thread().name.startswith("lane-ahead")
            whole(self, lane)
            found.append(lane)

        monkeypatch.setattr(TorchVerifier, "populate_lane", populate_lane)
        return found

    def test_the_lane_that_is_next_has_its_memory(self, populated: list[int], engine: Engine) -> None:
        await_equal(populated, [0])
        open_session(engine, "a")
        await_equal(populated, [0, 1])
        engine.close("a", 1).result(TIMEOUT)
        open_session(engine, "b")  # where the first was: what is next has its memory
        open_session(engine, "c")
        await_equal(populated, [0, 1, 2])
        for number in range(NUM_LANES - 2):
            open_session(engine, f"more-{number}")
        assert populated == list(range(NUM_LANES))

    def test_it_begins_and_ends_with_the_engine(self, populated: list[int], verifier: TorchVerifier) -> None:
        before = set(threading.enumerate())
        engine = Engine(verifier, LaneGeometry(SINK, WINDOW, chunk=32), NUM_LANES, step_tokens=64)
        assert not set(threading.enumerate()) - before
        engine.start()
        await_equal(populated, [0])
        engine.shut_down()
        assert not set(threading.enumerate()) - before


def await_equal(found: list[int], expected: list[int]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while found != expected and time.monotonic() < deadline:
        time.sleep(0.001)
    assert found == expected
