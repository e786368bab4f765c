"""`kakeya demo` as people run it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.default_mode import kv_item_bytes

pytestmark = pytest.mark.timeout(180)


def run_demo(*flags: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "kakeya", "demo", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=150)


def formula(demo_directory: Path) -> int:
    config = json.loads((demo_directory / "config.json").read_text())
    slots = config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"]
    return int(slots * kv_item_bytes() * 2)  # K and V


def check_turns(document: dict[str, Any], bytes_per_token: int, num_conversations: int, num_turns: int) -> None:
    assert set(document) == {"sink", "window", "kv_bytes_per_token", "turns"}
    assert document["kv_bytes_per_token"] == bytes_per_token
    places = [(turn["turn"], turn["conversation"]) for turn in document["turns"]]
    assert places == [(t, c) for t in range(1, num_turns + 1) for c in range(1, num_conversations + 1)], "interleaved"
    history = dict.fromkeys(range(1, num_conversations + 1), 0)
    for turn in document["turns"]:
        assert turn["new_tokens"] > 16
        assert turn["prefill_seconds"] > 0
        assert turn["decode_seconds"] > 0
        history[turn["conversation"]] += turn["new_tokens"]
        assert turn["history_length"] == history[turn["conversation"]]
        live_tokens = min(turn["history_length"], document["sink"] + document["window"])
        assert turn["kv_live_bytes"] == live_tokens * bytes_per_token


def test_the_demo_as_it_is(tmp_path: Path, demo_directory: Path) -> None:
    done = run_demo("--json", str(tmp_path / "demo.json"))
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "demo.json").read_text())
    assert (document["sink"], document["window"]) == (4, 64)
    check_turns(document, formula(demo_directory), num_conversations=3, num_turns=40)
    assert all(turn["history_length"] > 5 * 68 for turn in document["turns"][-3:])
    assert "exact in all 360 readings" in done.stdout
    assert "history grew to" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["demo.json"]


def test_other_sizes(tmp_path: Path, demo_directory: Path) -> None:
    flags = ["--turns", "3", "--conversations", "4", "--workers", "1", "--sink", "0", "--window", "200", "--json"]
    done = run_demo(*flags, str(tmp_path / "demo.json"), "--model", str(demo_directory))
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "demo.json").read_text())
    assert (document["sink"], document["window"]) == (0, 200)
    check_turns(document, formula(demo_directory), num_conversations=4, num_turns=3)


def test_no_model() -> None:
    done = run_demo("--model", "/nowhere/model")
    assert done.returncode == 1
    assert done.stderr == (
        "kakeya demo: error: no model at '/nowhere/model': neither a directory nor a hub id (owner/name)\n"
    )


def test_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kakeya", "demo", "--turns", "100000", "--json", str(tmp_path / "demo.json")]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as demo:
        assert demo.stdout
        demo.stdout.readline()  # the table has begun
        time.sleep(0.5)
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=45)
    assert demo.returncode == 130, errors
    assert b"Traceback" not in errors
    assert list(tmp_path.iterdir()) == []
