"""lm-evaluation-harness scores completions by their log-likelihoods (`local-completions`)."""

import json
import os
import subprocess
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from kakeya_shared import installed_models
from tests.clients.environments import program
from tests.integration.open_http import MODEL
from tests.integration.processes import Runtime

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]
_TOLERANCE = 1e-3
"""Of a sum of some ten log-probabilities, both computed in float32."""
_QUESTIONS = [
    {"question": "My name is", "choices": [" Julia", " a table", " seven"]},
    {"question": "The sun is", "choices": [" warm", " a small red fish", " yesterday"]},
    {"question": "Hello! How are", "choices": [" you", " it"]},
    {"question": "Two and two make", "choices": [" four", " five"]},
]
_TASK = """task: kakeya_made
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: choices
doc_to_target: 0
target_delimiter: ""
metric_list: [{{metric: acc}}]
"""


@pytest.fixture(scope="module")
def scored(stack: Runtime, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What it logs of each question."""
    lm_eval = program("lm-eval", "lm_eval")
    folder = tmp_path_factory.mktemp("lm_eval")
    (folder / "made.jsonl").write_text("".join(json.dumps(question) + "\n" for question in _QUESTIONS))
    (folder / "made.yaml").write_text(_TASK.format(data=folder / "made.jsonl"))
    model = {
        "model": MODEL,
        "base_url": f"http://{stack.shims[0].address}/v1/completions",
        "tokenizer": str(installed_models.directory(MODEL)),
        "tokenizer_backend": "huggingface",
        "num_concurrent": "2",
        "max_length": "512",
    }
    arguments = ",".join(f"{name}={value}" for name, value in model.items())
    command = [lm_eval, "--model", "local-completions", "--model_args", arguments, "--tasks", "kakeya_made"]
    command += ["--include_path", str(folder), "--output_path", str(folder / "out"), "--log_samples"]
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hub"),
        "TOKENIZERS_PARALLELISM": "false",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-4000:]
    (log,) = (folder / "out").rglob("samples_*.jsonl")
    return sorted((json.loads(line) for line in log.read_text().splitlines()), key=lambda sample: sample["doc_id"])


def test_log_likelihoods_are_those_of_transformers(scored: list[dict[str, Any]]) -> None:
    folder = installed_models.directory(MODEL)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    assert len(scored) == len(_QUESTIONS)
    for question, sample in zip(_QUESTIONS, scored, strict=True):
        assert len(sample["filtered_resps"]) == len(question["choices"])
        for choice, (logprob, is_greedy) in zip(question["choices"], sample["filtered_resps"], strict=True):
            wanted = log_likelihood(model, tokenizer, str(question["question"]), choice)
            assert abs(float(logprob) - wanted[0]) < _TOLERANCE, (question, choice)
            assert (str(is_greedy) == "True") == wanted[1], (question, choice)


def log_likelihood(model: Any, tokenizer: Any, context: str, choice: str) -> tuple[float, bool]:
    """Of a choice behind a context, and whether each of its tokens is the likeliest; cut as the harness cuts them."""
    whole = tokenizer(context + choice, add_special_tokens=False).input_ids
    num_context = len(tokenizer(context, add_special_tokens=False).input_ids)
    with torch.inference_mode():
        logprobs = model(torch.tensor([whole])).logits[0].double().log_softmax(-1)  # [tokens, vocabulary]
    ids = torch.tensor(whole[num_context:])
    rows = logprobs[num_context - 1 : -1]
    return float(rows.gather(1, ids[:, None]).sum()), bool((rows.argmax(-1) == ids).all())
