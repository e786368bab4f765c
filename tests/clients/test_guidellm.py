"""guidellm measures a server: it asks for its health and models, then sends chats and reads their streams."""

import json
import os
import subprocess
from typing import Any

import pytest

from kakeya_shared import installed_models
from tests.clients.environments import program
from tests.integration.open_http import MODEL
from tests.integration.processes import Runtime

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]
_PROMPT_TOKENS, _OUTPUT_TOKENS, _NUM_REQUESTS = 32, 16, 12


@pytest.fixture(scope="module")
def benchmarks(stack: Runtime, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Of a sweep: one request after the other, as many as go at once, and rates between the two."""
    folder = tmp_path_factory.mktemp("guidellm")
    report, folder_of_model = folder / "report.json", installed_models.directory(MODEL)
    command = [program("guidellm", "guidellm"), "run", "--disable-console-interactive"]
    command += ["--backend", f"kind=openai_http,target=http://{stack.shims[0].address},model={MODEL}"]
    command += ["--tokenizer", f"kind=huggingface_auto,model={folder_of_model}"]
    command += ["--data", f"kind=synthetic_text,prompt_tokens={_PROMPT_TOKENS},output_tokens={_OUTPUT_TOKENS}"]
    command += ["--profile", "kind=sweep,sweep_size=4", "--constraint", f"kind=max_requests,count={_NUM_REQUESTS}"]
    command += ["--output", f"kind=json,path={report}"]
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hub"),
        "TOKENIZERS_PARALLELISM": "false",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, cwd=folder)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    measured: list[dict[str, Any]] = json.loads(report.read_text())["benchmarks"]
    return measured


def test_a_sweep_has_true_figures(benchmarks: list[dict[str, Any]]) -> None:
    assert len(benchmarks) == 4
    for benchmark in benchmarks:
        requests = benchmark["requests"]
        assert len(requests["successful"]) == _NUM_REQUESTS
        assert not requests["errored"], requests["errored"][:1]
        for request in requests["successful"]:
            assert request["output_tokens"] == _OUTPUT_TOKENS, "ignore_eos is obeyed, and usage says so"
            assert _PROMPT_TOKENS <= request["prompt_tokens"] <= 2 * _PROMPT_TOKENS, "with what the template adds"
            milliseconds = request["time_to_first_token_ms"], request["inter_token_latency_ms"]
            assert 0 < min(milliseconds) <= max(milliseconds) < 1000 * request["request_latency"]
            assert request["output_tokens_per_second"] == pytest.approx(_OUTPUT_TOKENS / request["request_latency"])
