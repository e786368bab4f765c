"""`kakeya bench compare` on a real runtime, its HTTP shim, and a server that re-prefills."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kakeya_bench.rivals.transformers_server import transformers_server
from tests.checkpoints import make_qwen3
from tests.integration.processes import SINK, WINDOW, runtime
from tests.unit.sdk import tiny_tokenizer

NEW, OUT, TURNS = 30, 4, 8


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_all_play_the_same_conversation(tmp_path: Path) -> None:
    model = make_qwen3(tmp_path / "random", vocab_size=1024)
    tokenizer = tiny_tokenizer.save_with_words(tmp_path / "tokenizer", num_words=700)
    with (
        runtime(model, tmp_path, num_workers=0) as stack,
        transformers_server(model, num_threads=1) as transformers,
    ):
        stack.start_worker("--served-model-name", "random", lanes=2)
        stack.wait_for_workers(1)
        shim = stack.start_http("--tokenizer", f"random={tokenizer}")
        command = [
            sys.executable, "-m", "kakeya", "bench", "compare", "--address", stack.address, "--config", str(model),
            "--turns", str(TURNS), "--new-tokens", str(NEW), "--max-tokens", str(OUT),
            "--output", str(tmp_path / "out"),
            f"--rival=shim=http://{shim.address}/v1,every=mark",
            f"--rival=transformers={transformers.url}/v1,pid={transformers.pid}",
            '--fields=shim={"ignore_eos": null, "return_token_ids": null}',
            '--fields=transformers={"model": "random"}',
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=540)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "out" / "compare.json").read_text())
    turns: dict[str, list[dict[str, Any]]] = {player["name"]: [] for player in found["players"]}
    for turn in found["turns"]:
        turns[turn["player"]].append(turn)
    assert [turn["error"] for played in turns.values() for turn in played] == [None] * (TURNS + TURNS + 2)
    bytes_per_token = found["model"]["kv_bytes_per_token"]
    for turn in turns["kakeya"]:
        assert turn["num_sent_tokens"] == NEW
        assert turn["history_length"] == turn["index"] * (NEW + OUT)
        assert turn["kv_live_bytes"] == min(turn["history_length"], SINK + WINDOW) * bytes_per_token
    for turn in turns["transformers"]:
        assert turn["num_sent_tokens"] == turn["index"] * (NEW + OUT) - OUT
    assert [turn["index"] for turn in turns["shim"]] == [1, TURNS]
