from collections.abc import Iterator

import pytest

from tests.unit.sdk.cuttable_link import CuttableLink
from tests.unit.sdk.scripted_runtime import ScriptedRuntime


@pytest.fixture
def runtime() -> Iterator[ScriptedRuntime]:
    runtime = ScriptedRuntime()
    yield runtime
    runtime.stop()


@pytest.fixture
def link(runtime: ScriptedRuntime) -> Iterator[CuttableLink]:
    link = CuttableLink(runtime.port)
    yield link
    link.close()
