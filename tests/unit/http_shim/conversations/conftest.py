from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.http_shim.shim import Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.http_shim.talk import Talk
from tests.unit.sdk.scripted_runtime import ScriptedRuntime


@pytest.fixture
async def live(runtime: ScriptedRuntime, tokenizer_dir: Path) -> AsyncIterator[Shim]:
    """A shim with live sessions."""
    async with serving_shim(runtime, tokenizer_dir, "--live-sessions", "on") as shim:
        yield shim


@pytest.fixture
def talk(live: Shim) -> Talk:
    return Talk(live)
