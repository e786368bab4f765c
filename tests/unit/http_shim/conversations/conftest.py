from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.http_shim.shim import Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.http_shim.talk import Talk
from tests.unit.sdk.scripted_runtime import ScriptedRuntime


def forget_search(runtime: ScriptedRuntime) -> None:
    """It is one of an older version: FindSession and TagTurn are calls of their own."""
    runtime.has_search = False
    for model in runtime.models:
        model.ClearField("features")


@pytest.fixture(params=[True, False], ids=["searching", "finding"])
async def live(runtime: ScriptedRuntime, tokenizer_dir: Path, request: pytest.FixtureRequest) -> AsyncIterator[Shim]:
    """A shim with live sessions, before a runtime that looks for sessions within their turns, and before another."""
    if not request.param:
        forget_search(runtime)
    async with serving_shim(runtime, tokenizer_dir, "--live-sessions", "on") as shim:
        yield shim


@pytest.fixture
async def older(runtime: ScriptedRuntime, tokenizer_dir: Path) -> AsyncIterator[Shim]:
    """Before the other alone."""
    forget_search(runtime)
    async with serving_shim(runtime, tokenizer_dir, "--live-sessions", "on") as shim:
        yield shim


@pytest.fixture
def talk(live: Shim) -> Talk:
    return Talk(live)
