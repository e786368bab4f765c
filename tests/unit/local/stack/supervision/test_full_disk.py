"""Redis and a disk that takes no more: how the stack is kept up, and Redis started again."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from kakeya_local.stack.data_directory import DataDirectory, open_directory
from kakeya_local.stack.supervision import full_disk
from kakeya_local.stack.supervision.full_disk import FullDisk
from kakeya_local.stack.supervision.supervisor import ProcessStatus, Supervisor

GREETING = "9:C 25 Nov 2026 04:47:14.648 # oO0OoO0OoO0Oo Redis is starting oO0OoO0OoO0Oo\n"
READ_ONLY = "9:M 25 Nov 2026 04:47:14.648 # Can't open the append-only file: Read-only file system\n"


class Scripted:
    """A supervisor that counts the starts it is asked for."""

    num_starts = 0

    async def start(self, name: str) -> None:
        assert name == "redis"
        self.num_starts += 1


class Watch:
    """Looks at a Redis of which only the state is known."""

    def __init__(self, directory: DataDirectory) -> None:
        self.supervisor, self.reports = Scripted(), list[str]()
        self.disk = FullDisk(directory, cast(Supervisor, self.supervisor), self.reports.append)

    async def keeps_away(self, state: str) -> bool:
        return await self.disk.keeps_away(ProcessStatus("redis", state, 0, 1))


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DataDirectory]:
    with open_directory(tmp_path / "data", ephemeral=False) as opened:
        yield opened


@pytest.fixture
def watch(directory: DataDirectory) -> Watch:
    return Watch(directory)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why there is no room, once something stands in it."""
    reasons: list[str] = []
    monkeypatch.setattr(full_disk, "shortage", lambda path: "".join(reasons))
    return reasons


async def test_redis_is_awaited_until_there_is_room(watch: Watch, full: list[str]) -> None:
    assert not await watch.keeps_away("RUNNING")
    full.append("it is full")
    assert not await watch.keeps_away("RUNNING")
    for state in ("STARTING", "RUNNING", "BACKOFF", "FATAL", "FATAL"):
        assert await watch.keeps_away(state)
    assert (watch.supervisor.num_starts, watch.disk.reason) == (0, "it is full")
    full.clear()
    for state in ("FATAL", "STARTING", "RUNNING"):
        assert await watch.keeps_away(state)
    assert watch.supervisor.num_starts == 1
    assert not await watch.keeps_away("RUNNING")
    assert [line.split(";")[0] for line in watch.reports] == ["redis ended: it is full", "redis runs again"]


async def test_a_first_start_on_little_room_is_given_its_chance(watch: Watch, full: list[str]) -> None:
    full.append("it is nearly full")
    assert not await watch.keeps_away("STARTING")
    assert await watch.keeps_away("BACKOFF")


async def test_it_may_fill_again_and_again(watch: Watch, full: list[str]) -> None:
    for number in range(1, 4):
        full.append("it is full")
        assert await watch.keeps_away("FATAL")
        full.clear()
        assert await watch.keeps_away("FATAL")
        assert watch.supervisor.num_starts == number


async def test_what_room_does_not_help_with_is_judged_by_others(watch: Watch, full: list[str]) -> None:
    full.append("it is full")
    assert await watch.keeps_away("FATAL")
    full.clear()
    assert await watch.keeps_away("FATAL")
    assert not await watch.keeps_away("FATAL")
    assert watch.supervisor.num_starts == 1


async def test_a_redis_that_runs_on_little_room_runs(
    watch: Watch, full: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    full.append("it is nearly full")
    assert await watch.keeps_away("EXITED")
    monkeypatch.setattr(full_disk, "_SETTLED_SECONDS", -1.0)
    assert await watch.keeps_away("RUNNING")
    assert not await watch.keeps_away("RUNNING")


async def test_what_redis_itself_says_of_its_disk_counts_and_it_is_tried_less_and_less_often(
    watch: Watch, full: list[str], directory: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.log("redis").write_text(READ_ONLY + GREETING)
    assert not await watch.keeps_away("FATAL"), "it was said of an earlier start"
    directory.log("redis").write_text(GREETING + READ_ONLY)
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    starts = []
    for _ in range(200):
        assert await watch.keeps_away("FATAL")
        starts.append(watch.supervisor.num_starts)
        now += 0.5
    assert watch.disk.reason == "Can't open the append-only file: Read-only file system"
    changes = [number / 2 for number in range(1, 200) if starts[number] > starts[number - 1]]
    assert (starts[0], changes) == (1, [1.0, 3.0, 7.0, 15.0, 31.0, 61.0, 91.0])
