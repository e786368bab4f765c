"""What `kakeya up` says of its lanes."""

from typing import Any

import pytest

from kakeya_local.settings import UpSettings
from kakeya_local.up.lane_report import lane_line
from kakeya_stubs.admin.v1.admin_pb2 import WorkerStatus


def _worker(capacity: int, num_lanes: int = 2) -> WorkerStatus:
    return WorkerStatus(
        sink=4, window=capacity - 4, num_lanes=num_lanes, lane_bytes=(capacity + 46) * 100, kv_bytes_per_token=100
    )


def test_a_lane_that_no_agent_fits_in() -> None:
    assert lane_line([_worker(4_100, num_lanes=4)], is_largest=False) == (
        "a lane holds 4,100 tokens, which suits chats. Agents send more before the user speaks (opencode 8,000, "
        "Codex 10,000, Claude Code 19,000); --window max gives as much as fits"
    )


def test_the_largest_lane_that_some_agents_fit_in_names_the_bytes_for_all() -> None:
    assert lane_line([_worker(16_000)], is_largest=True) == (
        "a lane holds 16,000 tokens, which suits chats, opencode, Codex. Agents send more before the user speaks "
        f"(Claude Code 19,000); 23,096 need --slab-bytes {2 * (23_096 + 46) * 100}, and a model of so many positions"
    )


@pytest.mark.parametrize("is_largest", [False, True])
def test_a_lane_that_suits_all(is_largest: bool) -> None:
    line = "a lane holds 23,096 tokens, which suits chats, opencode, Codex, Claude Code"
    assert lane_line([_worker(23_096)], is_largest=is_largest) == line


def test_the_smallest_lanes_of_a_stack_count() -> None:
    assert lane_line([_worker(30_000), _worker(1_024)], is_largest=False).startswith("a lane holds 1,024 tokens")


@pytest.mark.parametrize(("given", "window"), [("max", "max"), ("2048", 2048)])
def test_the_window_of_a_stack(given: str, window: Any) -> None:
    assert UpSettings.parse([f"--window={given}"]).window == window


@pytest.mark.parametrize("given", ["0", "most", "-3"])
def test_windows_that_there_are_not(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        UpSettings.parse([f"--window={given}"])
    assert "--window (KAKEYA_UP_WINDOW)" in capsys.readouterr().err
