"""`kakeya demo` as people run it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kakeya_shared import installed_models
from tests.default_mode import is_exact, kv_item_bytes

pytestmark = pytest.mark.timeout(600)  # a whole stack each, beside whatever else the machine does


def run_demo(*flags: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "kakeya", "demo", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=150)


def formula() -> int:
    config = json.loads((installed_models.directory("kakeya-nano") / "config.json").read_text())
    slots = config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"]
    return int(slots * kv_item_bytes("bfloat16") * 2)  # K and V


def check_turns(document: dict[str, Any], num_conversations: int, num_turns: int) -> None:
    bytes_per_token = formula()
    assert document["kv_bytes_per_token"] == bytes_per_token
    places = [(turn["turn"], turn["conversation"]) for turn in document["turns"]]
    assert places == [(t, c) for t in range(1, num_turns + 1) for c in range(1, num_conversations + 1)], "interleaved"
    assert len(document["conversations"]) == num_conversations
    history = dict.fromkeys(range(1, num_conversations + 1), 0)
    evicted = dict.fromkeys(history, 0)
    for turn in document["turns"]:
        session = document["conversations"][turn["conversation"] - 1]
        assert session["sink"] >= session["pinned_tokens"] > 0, "the system prompt is pinned"
        assert session["sink"] + session["window"] == document["sink"] + document["window"]
        assert turn["user"]
        assert (turn["over_http"] is not None) == bool(session["tools"])
        if turn["over_http"] is None:
            assert turn["prefill_seconds"] > 0
            assert turn["decode_seconds"] > 0
        history[turn["conversation"]] += turn["new_tokens"]
        evicted[turn["conversation"]] += turn["evicted_tokens"]
        assert turn["history_length"] == history[turn["conversation"]]
        live_tokens = min(turn["history_length"], session["sink"] + session["window"])
        assert turn["kv_live_bytes"] == live_tokens * bytes_per_token
        assert turn["forgotten_tokens"] == turn["history_length"] - live_tokens == evicted[turn["conversation"]]


def check_tools(document: dict[str, Any]) -> None:
    """The conversation with tools, each turn of which goes on in one session."""
    turns = [turn for turn in document["turns"] if turn["over_http"]]
    told = [turn["over_http"] for turn in turns]
    assert [each["session_state"] for each in told] == ["new"] + ["continued"] * (len(told) - 1)
    for before, after in pairwise(told):
        assert after["reused"] == before["history"], "it appends its own tokens only"
    assert all(turn["history_length"] == turn["over_http"]["history"] for turn in turns)


def check_http(document: dict[str, Any], turns: list[int]) -> None:
    """The conversation over HTTP, whose requests hold all that was said before."""
    http, lane_tokens = document["http"], document["sink"] + document["window"]
    assert (http["past_turns"], http["lane_tokens"], http["left_sessions"]) == (turns[0] - 1, lane_tokens, 0)
    assert [turn["turn"] for turn in http["turns"]] == turns
    num_tokens = 0
    for turn in http["turns"]:
        assert turn["prompt_tokens"] > num_tokens, "what was said before is sent again"
        num_tokens = turn["history"]
        assert num_tokens == turn["prompt_tokens"] + turn["completion_tokens"]
        assert turn["evicted"] == max(0, num_tokens - lane_tokens) == num_tokens - turn["retained"]
        assert turn["first_token_seconds"] > 0
        assert turn["answer"]
        assert turn["appended"] + turn["reused"] == turn["prompt_tokens"]
    assert [turn["session_state"] for turn in http["turns"]] == ["new"] + ["continued"] * (len(turns) - 1)
    for before, after in pairwise(http["turns"]):
        assert after["reused"] == before["history"], "it appends its own tokens only"


@pytest.mark.heavy
def test_the_demo_as_it_is(tmp_path: Path) -> None:
    done = run_demo("--json", str(tmp_path / "demo.json"))
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "demo.json").read_text())
    assert document["model"] == "kakeya-nano"
    check_turns(document, num_conversations=3, num_turns=44)
    assert all(turn["history_length"] > 5 * 240 for turn in document["turns"][-3:])
    assert sum(turn["expected"] != "" and not turn["as_expected"] for turn in document["turns"]) <= 1
    check_http(document, [27, 28, 29, 30, 31])
    assert document["http"]["turns"][-1]["evicted"] > 500
    assert sum(turn["expected"] != "" and not turn["as_expected"] for turn in document["http"]["turns"]) <= 1
    if is_exact():
        assert all(turn["same_as_grpc"] for turn in document["http"]["turns"])
    check_tools(document)
    assert sum(turn["answer"].startswith('get_weather({"city": ') for turn in document["turns"]) >= 5
    assert "over HTTP: its tool was called " in done.stdout
    assert "and 43 of 43 further turns went on in its session" in done.stdout
    assert "exact in all 308 readings" in done.stdout
    assert "once more, over HTTP; the 26 turns before are brought along" in done.stdout
    assert "turn 31 sent the whole conversation and appended its own " in done.stdout
    assert "what exceeds 240 tokens is evicted; no other session is left" in done.stdout
    assert "history grew to" in done.stdout
    assert 40 <= len(done.stdout.splitlines()) <= 90, "conversations that fit a screen or two"
    assert [path.name for path in tmp_path.iterdir()] == ["demo.json"]


@pytest.mark.heavy
def test_other_sizes_and_a_directory(tmp_path: Path) -> None:
    model = shutil.copytree(installed_models.directory("kakeya-nano"), tmp_path / "mine")
    flags = ["--turns", "3", "--conversations", "4", "--workers", "1", "--sink", "0", "--window", "200", "--json"]
    done = run_demo(*flags, str(tmp_path / "demo.json"), "--model", str(model))
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "demo.json").read_text())
    assert (document["model"], document["sink"], document["window"]) == ("mine", 0, 200)
    check_turns(document, num_conversations=4, num_turns=3)
    check_tools(document)
    check_http(document, [1, 2, 3])
    assert not any(turn["expected"] for turn in document["turns"]), "the scripts were not written for this"
    assert "answers: nothing was expected of them" in done.stdout


def test_a_window_that_the_system_prompts_do_not_leave() -> None:
    done = run_demo("--window", "20")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.endswith("which leave no window in lanes of 24; choose a larger --window")


def test_no_model() -> None:
    done = run_demo("--model", "/nowhere/model")
    assert done.returncode == 1
    assert done.stderr == (
        "kakeya demo: error: no model at '/nowhere/model': neither a directory, nor an installed model (kakeya-nano), "
        "nor a hub id (owner/name); `kakeya models list` shows what is on this host\n"
    )


@pytest.mark.heavy
def test_a_model_that_calls_no_tools(tmp_path: Path) -> None:
    model = shutil.copytree(installed_models.directory("kakeya-nano"), tmp_path / "mute")
    config = json.loads((model / "tokenizer_config.json").read_text())
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    (model / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": template}))
    done = run_demo("--turns", "2", "--workers", "1", "--json", str(tmp_path / "demo.json"), "--model", str(model))
    assert done.returncode == 0, done.stderr
    assert "'a tool that tells the weather' is left out: over HTTP the model calls no tools" in done.stderr
    document = json.loads((tmp_path / "demo.json").read_text())
    check_turns(document, num_conversations=2, num_turns=2)


@pytest.mark.heavy
def test_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kakeya", "demo", "--turns", "100000", "--json", str(tmp_path / "demo.json")]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as demo:
        assert demo.stderr
        while b" at turn 1 of " not in demo.stderr.readline():
            assert demo.poll() is None
        time.sleep(0.5)
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=60)
    assert demo.returncode == 130, errors
    assert b"Traceback" not in errors
    assert list(tmp_path.iterdir()) == []
