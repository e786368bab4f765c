"""`kakeya bench compare` on a real runtime, its HTTP shim, and a server that re-prefills."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kakeya_bench.rivals.transformers_server import transformers_server
from tests import word_tokenizer
from tests.checkpoints import make_qwen3
from tests.integration.processes import SINK, WINDOW, runtime

NEW, OUT, TURNS, VOCAB_SIZE = 30, 4, 8, 1024


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_all_play_the_same_conversation(tmp_path: Path) -> None:
    model = make_qwen3(tmp_path / "random", vocab_size=VOCAB_SIZE)
    tokenizer = word_tokenizer.save(tmp_path / "tokenizer", VOCAB_SIZE)
    with (
        runtime(model, tmp_path, num_workers=0) as stack,
        transformers_server(model, num_threads=1) as transformers,
    ):
        stack.start_worker("--served-model-name", "random", lanes=6)
        stack.wait_for_workers(1)
        shim = stack.start_http("--live-sessions", "on", "--tokenizer", f"random={tokenizer}")
        words = json.dumps({"logit_bias": word_tokenizer.endless(VOCAB_SIZE)})
        command = [
            sys.executable, "-m", "kakeya", "bench", "compare", "--address", stack.address, "--config", str(model),
            "--turns", str(TURNS), "--new-tokens", str(NEW), "--max-tokens", str(OUT),
            "--output", str(tmp_path / "out"),
            f"--rival=shim=http://{shim.address}/v1,api=chat,model=random,tokenizer={tokenizer},messages=41",
            f"--rival=responses=http://{shim.address}/v1,api=responses,model=random,tokenizer={tokenizer}",
            f"--rival=transformers={transformers.url}/v1,every=mark,pid={transformers.pid}",
            f"--fields=shim={words}",
            f"--fields=responses={words}",
            '--fields=transformers={"model": "random"}',
            "--goes-on=shim,responses",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=540)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "out" / "compare.json").read_text())
    turns: dict[str, list[dict[str, Any]]] = {player["name"]: [] for player in found["players"]}
    for turn in found["turns"]:
        turns[turn["player"]].append(turn)
    assert [turn["error"] for played in turns.values() for turn in played] == [None] * (3 * TURNS + 2)
    assert {name: claim["outcome"] for name, claim in found["claims"].items()} == {
        f"{name} {claim}": "passed" for name in ("shim", "responses") for claim in ("appended", "continued")
    }
    bytes_per_token = found["model"]["kv_bytes_per_token"]
    for turn in turns["kakeya"]:
        assert turn["num_sent_tokens"] == NEW
        assert turn["history_length"] == turn["index"] * (NEW + OUT)
        assert turn["kv_live_bytes"] == min(turn["history_length"], SINK + WINDOW) * bytes_per_token
    for turn in turns["transformers"]:
        assert turn["num_sent_tokens"] == turn["index"] * (NEW + OUT) - OUT
    assert [turn["index"] for turn in turns["transformers"]] == [1, TURNS]
    for name in ("shim", "responses"):
        assert [turn["num_appended_tokens"] for turn in turns[name]] == [NEW - 1, *[NEW] * (TURNS - 1)]
        for turn in turns[name]:
            assert turn["history_length"] == turn["index"] * (NEW + OUT) - 1, "nothing is prefilled twice, or left out"
            assert turn["num_cached_tokens"] == turn["history_length"] - OUT - turn["num_appended_tokens"]
    assert [turn["num_sent_tokens"] for turn in turns["responses"]] == [NEW - 1, *[NEW] * (TURNS - 1)]
    long = next(player["long_chat"] for player in found["players"] if player["name"] == "shim")
    assert (long["error"], long["num_messages"]) == (None, 41)
    assert long["session_states"] == ["continued"] * len(long["cpu_seconds"])
    assert min(long["cpu_seconds"]) > 0.0
