"""A stack for agents: models whose answers a test writes, in sessions that hold what agents send."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.results import Results
from tests.loops.calls import TOOL_PARSERS
from tests.loops.families import CODER, FAMILIES
from tests.loops.stage import Stage, stage

WINDOW = 98_304
"""The instructions and tools of a coding agent are pinned, and have room beside a conversation."""
_NAMES = ("Qwen3", "Mistral")


@pytest.fixture(scope="session")
def results() -> Iterator[Results]:
    """Kept in the file that KAKEYA_TEST_AGENTS names."""
    made = Results()
    yield made
    if path := os.environ.get("KAKEYA_TEST_AGENTS"):
        made.save(Path(path))


@pytest.fixture(scope="session")
def made_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Its models answer to the names of Anthropic's, too."""
    families = [*(family for family in FAMILIES if family.name in _NAMES), CODER]
    flags = (*TOOL_PARSERS, f"--model-alias=claude-*={CODER.model}")
    with stage(tmp_path_factory.mktemp("stage"), families, WINDOW, *flags) as made:
        yield made


@pytest.fixture
def agents_stage(made_stage: Stage) -> Iterator[Stage]:
    """One whose recorder has nothing of earlier tests, and no director; what a test has not taken is shown."""
    recorder = made_stage.recorder
    recorder.take()
    recorder.asked()
    yield made_stage
    recorder.director = None

    print(recorder.asked())
    for each in recorder.take():
        tools, last = each.body.get("tools") or (), str((each.body.get("messages") or each.body["input"])[-1])
        print(each.status, each.refusal, each.session, f"{len(tools)} tools", last[:1500], sep="\n  ")
