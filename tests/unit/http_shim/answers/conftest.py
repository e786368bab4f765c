"""A model that calls tools."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.http_shim.shim import Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk import families
from tests.unit.sdk.scripted_runtime import ScriptedRuntime


@pytest.fixture(scope="session")
def calling_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tokenizer of a model that thinks and calls as Qwen3 does."""
    folder = tmp_path_factory.mktemp("calling")
    families.save(folder, families.ONES["qwen3"])
    return folder


@pytest.fixture
async def caller(runtime: ScriptedRuntime, calling_dir: Path) -> AsyncIterator[Shim]:
    async with serving_shim(runtime, calling_dir) as shim:
        yield shim
        await shim.nothing_left()
