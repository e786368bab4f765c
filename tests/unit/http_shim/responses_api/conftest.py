"""What tests of stored responses are about."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.unit.http_shim.shim import Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk.scripted_runtime import ScriptedRuntime


@pytest.fixture
async def pair(runtime: ScriptedRuntime, tokenizer_dir: Path) -> AsyncIterator[tuple[Shim, Shim]]:
    """Two servers in front of one runtime, with live sessions."""
    flags = ("--live-sessions", "on")
    async with AsyncExitStack() as stack:
        yield (
            await stack.enter_async_context(serving_shim(runtime, tokenizer_dir, *flags)),
            await stack.enter_async_context(serving_shim(runtime, tokenizer_dir, *flags)),
        )
