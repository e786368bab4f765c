import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.known_plugins import plugins_looked_up_once
from tests.loop_clock import LoopClock
from tests.service_logs import logs_as_they_were, plain_logs
from tests.unit.http_shim.served import eventually
from tests.unit.http_shim.shim import Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.scripted_runtime import ScriptedRuntime


@pytest.fixture
async def clock() -> LoopClock:
    return LoopClock(asyncio.get_running_loop())


@pytest.fixture(scope="session", autouse=True)
def _plain_logs() -> None:
    plain_logs()


@pytest.fixture(scope="session", autouse=True)
def _plugins_are_looked_up_once() -> Iterator[None]:
    with plugins_looked_up_once():
        yield


@pytest.fixture(autouse=True)
def _logs_as_they_were(_plain_logs: None) -> Iterator[None]:
    with logs_as_they_were():
        yield


@pytest.fixture(scope="session")
def tokenizer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    tiny_tokenizer.save(folder, template=True)
    return folder


@pytest.fixture
def runtime() -> Iterator[ScriptedRuntime]:
    runtime = ScriptedRuntime()
    yield runtime
    runtime.stop()


@pytest.fixture
def roomy(runtime: ScriptedRuntime) -> ScriptedRuntime:
    """Its model's lanes hold lists of tools."""
    runtime.models[0].lane_token_count = 4096
    return runtime


@pytest.fixture
async def shim(runtime: ScriptedRuntime, tokenizer_dir: Path) -> AsyncIterator[Shim]:
    """A shim with its default settings; nothing is left of any session at the end of a test."""
    async with serving_shim(runtime, tokenizer_dir) as shim:
        yield shim
        await shim.nothing_left()
    await eventually(lambda: asyncio.all_tasks() == {asyncio.current_task()})  # gRPC's own end a moment later
