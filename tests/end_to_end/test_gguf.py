"""A model out of Ollama's store, from `kakeya up` to an answer: kakeya-nano, written as a GGUF file."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests import nano_gguf, ollama_files
from tests.end_to_end.up_process import UpProcess

pytestmark = pytest.mark.timeout(300)
NAME = "ollama:nano:bf16"
FLAGS = ("--ephemeral", "--bind", "127.0.0.1:0", "--http-bind", "127.0.0.1:0", "--window", "512", "--lanes", "2")
GREETING = "Hello! How can I help you today?"


def asked(up: UpProcess, **fields: Any) -> dict[str, Any]:
    body = {"model": "nano:bf16", "messages": [{"role": "user", "content": "Hello!"}], "temperature": 0} | fields
    request = urllib.request.Request(
        f"http://{up.http}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        choice: dict[str, Any] = json.load(answer)["choices"][0]
        return choice


def test_a_model_of_ollamas_store_is_listed_served_and_talked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTP shim, schemas, tools and `kakeya chat` read the tokenizer in the file."""
    path = nano_gguf.write(tmp_path / "nano.gguf")
    ollama_files.add(tmp_path / "store", "nano", path.read_bytes(), "bf16", license=b"Apache-2.0")
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "store"))
    kakeya = (sys.executable, "-m", "kakeya")
    listed = subprocess.run([*kakeya, "models", "list", "--json"], capture_output=True, text=True, check=True)
    (model,) = [each for each in json.loads(listed.stdout)["models"] if each["model"] == NAME]
    assert (model["family"], model["quantization"], model["problem"], model["note"]) == ("qwen3", "BF16", None, None)
    assert model["memory"]["weights_bytes"] in (2_752_512 // 64 * 66, 2 * 2_752_512)  # int8 and scales, or bfloat16
    with UpProcess("--model", NAME, *FLAGS) as up:
        up.wait_ready()
        choice = asked(up, max_tokens=32)
        assert (choice["message"]["content"], choice["finish_reason"]) == (GREETING, "stop")
        schema = {
            "type": "object",
            "properties": {"n": {"enum": [7]}},
            "required": ["n"],
            "additionalProperties": False,
        }
        wanted = {"type": "json_schema", "json_schema": {"name": "number", "strict": True, "schema": schema}}
        assert json.loads(asked(up, max_tokens=64, response_format=wanted)["message"]["content"]) == {"n": 7}
        said = subprocess.run(
            [*kakeya, "chat", "--address", up.address, "--tokenizer", NAME, "--temperature", "0"],
            input="Hello!\n",
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert GREETING in said.stdout
        assert said.returncode == 0
