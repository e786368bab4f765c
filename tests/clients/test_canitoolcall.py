"""canitoolcall's recorded outputs of models, plain and in every chunking, judged by its own checks."""

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.clients.environments import program

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

_REPLAY = Path(__file__).with_name("canitoolcall_replay.py")
_SOURCES = Path(__file__).resolve().parents[2] / "services/http_shim/src"
_NUM_FIXTURES = {"qwen3-hermes": 50, "qwen3-xml": 54, "llama": 34, "mistral": 47}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    done = subprocess.run(
        [program("canitoolcall", "python"), str(_REPLAY)],
        env=os.environ | {"PYTHONPATH": str(_SOURCES)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    replayed: list[dict[str, Any]] = json.loads(done.stdout)
    return replayed


def test_every_fixture_passes(rows: list[dict[str, Any]]) -> None:
    assert Counter(row["family"] for row in rows) == _NUM_FIXTURES
    assert [(row["id"], row["reasons"]) for row in rows if row["status"] not in {"pass", "soft_pass"}] == []


def test_soft_passes_are_white_space_at_an_end(rows: list[dict[str, Any]]) -> None:
    """Behind a thought, where it is kept as the model wrote it, and behind the text before a call."""
    for row in rows:
        print(f"{row['status']:9} {row['id']} {'; '.join(row['reasons'])}")
        assert all("(whitespace only)" in reason for reason in row["reasons"])


def test_what_is_streamed_is_what_is_not(rows: list[dict[str, Any]]) -> None:
    assert sum(row["num_streams"] for row in rows) > 40_000
    assert [row["id"] for row in rows if row["num_unlike_plain"]] == []
