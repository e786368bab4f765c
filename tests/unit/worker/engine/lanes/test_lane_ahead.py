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


def flags_of(tensor: torch.Tensor) -> list[str]:
    """What Linux says of the memory in the middle of a tensor: VmFlags of /proc/self/smaps."""
    address, is_there = tensor.data_ptr() + tensor.nbytes // 2, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if span := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            is_there = int(span[1], 16) <= address < int(span[2], 16)
        elif is_there and line.startswith("VmFlags:"):
            return line.split()[1:]
    raise AssertionError("no memory of this process")


@_ON_LINUX
@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="this system's Linux was built without huge pages"
)
@pytest.mark.parametrize(("window", "is_huge"), [(508, True), (444, False)])
def test_large_lanes_lie_in_huge_pages(window: int, is_huge: bool) -> None:
    slab = slab_of(LaneGeometry(sink=4, window=window, chunk=16))
    assert (slab.lane_bytes >= 4 << 20) == is_huge
    slab.populate_lane(1)
    for tensor in (*slab.keys, *slab.values):
        of_lanes = [flags_of(lane) for lane in tensor[:3]]
        assert ["hg" in flags for flags in of_lanes] == [False, is_huge, False]
        assert ["nh" in flags for flags in of_lanes] == [True, not is_huge, True], "not unasked either"


@_ON_LINUX
@pytest.mark.parametrize("window", [2044, 444])
def test_a_lane_has_all_its_memory_and_none_of_its_neighbours(window: int) -> None:
    slab = slab_of(LaneGeometry(sink=4, window=window, chunk=16))
    before = resident_bytes()
    slab.populate_lane(1)
    made = resident_bytes()
    assert abs(made - before - slab.lane_bytes) < 1 << 18
    for tensor in (*slab.keys, *slab.values):
        tensor[1].fill_(1)
    assert resident_bytes() - made < 1 << 18


def slab_of(geometry: LaneGeometry) -> Slab:
    return Slab(
        geometry,
        32,  # so much memory that it is a mapping of its own
        num_layers=2,
        num_kv_heads=8,
        head_dim=128,
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
