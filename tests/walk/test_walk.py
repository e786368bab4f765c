"""`make walk`: that the way of a call does not get longer."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kakeya
from tests.walk.way import Step, Watch, Way, purpose

# What is reached today: whoever gets it shorter lowers it here.
CEILING = {
    "append": {"files": 54, "router_files": 20, "router_returns": 72},
    "generate": {"files": 61, "router_files": 24, "router_returns": 122},
}


@pytest.mark.timeout(300)  # on a busy machine torch alone takes many seconds to be imported
def test_the_way_is_no_longer_than_its_ceiling(tmp_path: Path) -> None:
    # In a process of its own: the worker sets the threads of torch, and all that runs is traced.
    figures = tmp_path / "walk.json"
    command = [sys.executable, "-m", "tests.walk", "--json", str(figures)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = json.loads(figures.read_text())
    too_long = {
        (call, figure): f"{found[call][figure]} instead of {most}"
        for call, ceiling in CEILING.items()
        for figure, most in ceiling.items()
        if found[call][figure] > most
    }
    assert not too_long, told
    for call, parts in found.items():
        assert 0 < parts["router_files"] < parts["files"], call  # it was traced at all
        assert parts["router_files"] < parts["router_returns"], call


def test_returns_are_steps_into_the_router_from_another_file() -> None:
    engine = 2
    way = Way(
        (
            Step("kakeya/client.py", "call", 1),
            Step("kakeya_router/api/service.py", "Service.call", 1),
            Step("kakeya_worker/engine.py", "Engine.step", engine),
            Step("kakeya_router/api/service.py", "check", 1),
            Step("kakeya_router/store/keys.py", "Keys.session", 1),
            Step("kakeya_router/api/service.py", "check", 1),
        )
    )
    assert way.figures() == {"files": 4, "router_files": 2, "router_returns": 3}
    assert way.functions("kakeya_router/api/service.py") == ["Service.call", "check"]


OURS = """
async def waits(moment):
    squares = [number * number for number in range(3)]
    await moment.wait()
    last(squares)

def last(squares):
    assert squares == [0, 1, 4]
"""


@pytest.mark.parametrize("is_background", [False, True])
async def test_what_begins_in_a_file_of_ours_is_a_step_unless_in_the_background(is_background: bool) -> None:
    ours: dict[str, Any] = {}
    exec(compile(OURS, str(Path(kakeya.__file__).with_name("made_up.py")), "exec"), ours)
    watch, moment = Watch(), asyncio.Event()
    with watch.watching():
        task = asyncio.create_task(ours["waits"](moment))
        assert watch.take() == Way(())  # made, and not begun
        watch.background = frozenset({task} if is_background else ())
        await asyncio.sleep(0)
        moment.set()
        await task
    steps = [(step.file, step.function) for step in watch.take().steps]
    assert steps == ([] if is_background else [("kakeya/made_up.py", "waits"), ("kakeya/made_up.py", "last")])


def test_a_file_tells_its_purpose() -> None:
    assert purpose("kakeya_router/settings.py") == "What `kakeya router` can be told."
