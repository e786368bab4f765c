"""Ollama's own client of Python, unmodified, asks the HTTP shim by `/api`."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import WINDOW
from tests.clients.environments import program
from tests.integration.http_stack import prompt_ids, text_ids
from tests.integration.open_http import MODEL
from tests.integration.processes import Runtime
from tests.loops import played_verifier
from tests.loops.calls import call_text, call_tokens
from tests.loops.families import FAMILIES
from tests.loops.stage import Stage, stage

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]

_DRIVER = Path(__file__).with_name("drivers") / "ollama_python.py"
_FAMILY = "Qwen2.5"


def told_by(**given: Any) -> dict[str, Any]:
    """What the client prints."""
    command = [program("ollama", "python"), str(_DRIVER), json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-4000:]
    results: dict[str, Any] = json.loads(done.stdout)
    return results


@pytest.fixture(scope="module")
def told(stack: Runtime) -> dict[str, Any]:
    return told_by(url=f"http://{stack.start_http('--live-sessions', 'on').address}", model=MODEL)


def test_a_chat_and_what_it_took(told: dict[str, Any]) -> None:
    whole = told["whole"]
    assert (whole["model"], whole["done"]) == (MODEL, True)
    assert whole["text"]
    assert whole["prompt_eval_count"] == len(prompt_ids(("user", "Hello")))
    assert whole["eval_count"] == len(text_ids(whole["text"])) + (whole["done_reason"] == "stop")
    assert whole["total_duration"] > whole["eval_duration"] > 0


def test_a_stream_says_what_the_whole_answer_says(told: dict[str, Any]) -> None:
    assert "".join(told["pieces"]) == told["async"] == told["whole"]["text"]
    assert told["ends"] == [False] * (len(told["ends"]) - 1) + [True]
    for name in ("done_reason", "prompt_eval_count", "eval_count"):
        assert told["streamed"][name] == told["whole"][name]
    assert told["logprobs"]


def test_forms(told: dict[str, Any]) -> None:
    any_json, chosen = told["forms"]
    assert any_json.startswith("{")
    assert json.loads(chosen)["a"] in (1, 2)


def test_prompts(told: dict[str, Any]) -> None:
    assert told["generated"] == told["streamedPrompt"] == told["whole"]["text"]
    assert told["raw"] != told["generated"]
    assert told["loaded"] == "load"


def test_models(told: dict[str, Any]) -> None:
    models = told["models"]
    assert models["listed"] == [f"{MODEL}:latest"]
    ((name, num_seen),) = models["running"]
    assert (name, num_seen > WINDOW) == (f"{MODEL}:latest", True)
    assert "completion" in models["shown"]["capabilities"]
    assert models["shown"]["info"]["kakeya.context_length"] == num_seen
    assert models["shown"]["template"]


def test_turns_are_counted_as_they_are_in_the_history(told: dict[str, Any]) -> None:
    lengths = [sum(turn) for turn in told["turns"]]
    assert lengths == sorted(lengths)
    for (before, _), length in zip(told["turns"][1:], lengths, strict=False):
        assert before > length, "what was said stays, and the next question comes to it"


@pytest.mark.parametrize(
    ("case", "status", "message"),
    [
        ("notFound", 404, "model: the model 'other' does not exist"),
        ("streamed", 404, "model: the model 'other' does not exist"),
        ("embed", 501, "/api/embed is not supported: "),
        ("pull", 501, "/api/pull is not supported: "),
        ("option", 400, "options.temperature: "),
    ],
)
def test_errors(told: dict[str, Any], case: str, status: int, message: str) -> None:
    error = told["errors"][case]
    assert error["status"] == status
    assert error["message"].startswith(message)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A stack whose model says what a test has written."""
    families = [family for family in FAMILIES if family.name == _FAMILY]
    with stage(tmp_path_factory.mktemp("stage"), families, 1024) as made:
        yield made


def test_tools_are_called_and_answered(played: Stage) -> None:
    model = played.models[_FAMILY]
    texts = [
        call_text(_FAMILY, ("add", {"one": 1, "other": 2}), ("add", {"one": 3, "other": 4})),
        call_text(_FAMILY, ("add", {"one": 3, "other": 7})),
        "It is 10.",
    ]
    played_verifier.play(model.folder, [call_tokens(model, text) for text in texts])
    told = told_by(url=f"http://{played.recorder.address}", model=model.family.model, calls=True)
    first, second, last = told["answers"]
    calls = [[call["function"]["arguments"] for call in answer["tool_calls"]] for answer in (first, second)]
    assert calls == [[{"one": 1, "other": 2}, {"one": 3, "other": 4}], [{"one": 3, "other": 7}]]
    assert last["content"] == "It is 10."
    assert not last["tool_calls"]
    states = [(exchange.state, exchange.why) for exchange in played.recorder.take()]
    assert states == [("new", "first-turn"), ("continued", "next-turn"), ("continued", "next-turn")]
