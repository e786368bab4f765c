"""Anthropic's own clients, of Python and of npm, unmodified, ask the HTTP shim by `/v1/messages`."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.environments import folder, program
from tests.integration.http_stack import prompt_ids, text_ids
from tests.integration.open_http import MODEL
from tests.integration.processes import Runtime

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]

_DRIVERS = Path(__file__).with_name("drivers")
NAME = "claude-opus-4-8"


def by_python() -> tuple[list[str], Path]:
    return [program("anthropic", "python"), str(_DRIVERS / "anthropic_python.py")], _DRIVERS


def by_node() -> tuple[list[str], Path]:
    installed = folder("anthropic-npm", "node_modules").parent
    shutil.copy(_DRIVERS / "anthropic_npm" / "ask.mjs", installed)
    return ["node", "ask.mjs"], installed


@pytest.fixture(scope="module")
def url(stack: Runtime) -> str:
    """Of a server with live sessions, which answers to the names of other models."""
    return f"http://{stack.start_http('--model-alias', f'claude-*={MODEL}').address}"


@pytest.fixture(scope="module", params=[by_python, by_node])
def told(url: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    """What a client prints."""
    driver: Callable[[], tuple[list[str], Path]] = request.param
    command, where = driver()
    given = json.dumps({"url": url, "model": NAME, "name": driver.__name__})
    done = subprocess.run([*command, given], cwd=where, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-4000:]
    results: dict[str, Any] = json.loads(done.stdout)
    return results | {"name": driver.__name__}


def test_a_message_and_what_it_cost(told: dict[str, Any]) -> None:
    whole = told["whole"]
    assert (whole["model"], whole["isNamed"]) == (NAME, True)
    assert whole["text"]
    num_input, num_reused, num_output = whole["usage"]
    assert num_input + num_reused == len(prompt_ids(("user", "Hello")))
    assert num_output == len(text_ids(whole["text"])) + (whole["stopReason"] == "end_turn")


def test_a_stream_says_what_the_whole_message_says(told: dict[str, Any]) -> None:
    first, second, *deltas, stop, end, last = told["events"]
    assert (first, second, stop) == ("message_start", "content_block_start", "content_block_stop")
    assert (set(deltas), end, last) == ({"content_block_delta"}, "message_delta", "message_stop")
    helper, whole = told["helper"], told["whole"]
    assert helper["streamed"] == helper["text"] == whole["text"]
    assert helper["stopReason"] == whole["stopReason"]
    assert sum(helper["usage"][:2]) == sum(whole["usage"][:2])


def test_stop_sequences_and_what_is_gone_on_with(told: dict[str, Any]) -> None:
    text = told["whole"]["text"]
    assert told["stopped"]["text"] == text[: text.index(text[3:6])]
    assert (told["stopped"]["stopReason"], told["stopped"]["stopSequence"]) == ("stop_sequence", text[3:6])
    assert told["prefilled"]["text"]


def test_other_ways_to_ask(told: dict[str, Any]) -> None:
    assert told["beta"]["text"] == told["bearer"]["text"] == told["whole"]["text"]
    assert told["counted"] == len(prompt_ids(("system", "Be brief."), ("user", "Hello")))


def test_a_conversation_goes_on_in_its_session(told: dict[str, Any]) -> None:
    for number, turn in enumerate(told["turns"]):
        state, *said = turn["session"].split("; ")
        session = dict(part.split("=") for part in said)
        assert turn["usage"][:2] == [int(session["appended"]), int(session["reused"])]
        if number:
            assert (state, session["why"]) == ("continued", "next-turn")
            text = f"I am {told['name']}. What is {number} plus {number}?"
            behind = f"\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
            assert turn["usage"][0] <= len(text_ids(behind)) + 1


@pytest.mark.parametrize(
    ("case", "kind", "status", "type_", "message"),
    [
        ("badRequest", "BadRequestError", 400, "invalid_request_error", "max_tokens: "),
        ("image", "BadRequestError", 400, "invalid_request_error", "messages[0].content[0].type: not supported: "),
        ("notFound", "NotFoundError", 404, "not_found_error", "model: the model 'other' does not exist"),
    ],
)
def test_errors(told: dict[str, Any], case: str, kind: str, status: int, type_: str, message: str) -> None:
    error = told["errors"][case]
    assert error["message"].startswith(message)
    assert error.items() >= {"kind": kind, "status": status, "type": type_, "isNamed": True}.items()
