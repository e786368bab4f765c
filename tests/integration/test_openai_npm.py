"""The npm package `openai`, unmodified, asks for the same as its sister of Python in test_openai.py."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import kakeya
from kakeya_stubs.admin.v1.admin_pb2 import SCOPE_ADMIN, Quota
from tests.integration.http_stack import ABSENT, ALIAS, HttpStack, prompt_ids, text_ids
from tests.integration.open_http import ENDLESS, MODEL

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]
SCRIPT = Path(__file__).parent / "openai_npm"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script's directory with the package beside it."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not there")
    folder = tmp_path_factory.mktemp("npm") / "openai_npm"
    shutil.copytree(SCRIPT, folder, ignore=shutil.ignore_patterns("node_modules"))
    flags = ["--no-audit", "--no-fund", "--no-package-lock", "--engine-strict=false"]
    installed = subprocess.run(["npm", "install", *flags], cwd=folder, capture_output=True, text=True, timeout=200)
    assert installed.returncode == 0, installed.stderr
    return folder


@pytest.fixture(scope="module")
def said(http: HttpStack, package: Path) -> dict[str, Any]:
    """What the script prints."""
    spent = http.operator.make_key("spent")
    http.operator.set_quota("spent", Quota(max_sessions=1))
    given = {
        "model": MODEL,
        "absent": ABSENT,
        "bias": ENDLESS,
        "adminKey": http.operator.make_key("operators", SCOPE_ADMIN),
        "spentKey": spent,
    }
    environment = os.environ | {"OPENAI_BASE_URL": http.base_url, "OPENAI_API_KEY": http.key}
    with kakeya.Client(http.runtime.address, api_key=spent) as client, client.create_session():
        command = ["node", "ask.mjs", json.dumps(given)]
        asked = subprocess.run(command, cwd=package, env=environment, capture_output=True, text=True, timeout=90)
    assert asked.returncode == 0, asked.stderr
    results: dict[str, Any] = json.loads(asked.stdout)
    return results


def test_a_chat_and_what_it_cost(said: dict[str, Any]) -> None:
    chat, num_prompt_tokens = said["chat"], len(prompt_ids(("user", "Hello")))
    assert chat["text"]
    assert (chat["finishReason"], chat["model"]) == ("length", MODEL)
    usage = chat["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (num_prompt_tokens, 24)
    assert usage["total_tokens"] == num_prompt_tokens + 24
    assert said["completion"]["prompt_tokens"] == len(text_ids("Hello"))


def test_a_stream_says_what_the_whole_answer_says(said: dict[str, Any]) -> None:
    chat, stream = said["chat"], said["stream"]
    assert stream["text"] == chat["text"]
    assert stream["numChunks"] > 10
    assert stream["finishReasons"] == ["length"]
    assert stream["usage"] == chat["usage"]


def test_stop_texts(said: dict[str, Any]) -> None:
    text, stop = said["chat"]["text"], said["stop"]
    expected = text[: text.index(stop["text"])]
    assert (stop["whole"], stop["stream"]["text"]) == (expected, expected)
    assert stop["stream"]["finishReasons"] == ["stop"]


def test_seeds_and_choices(said: dict[str, Any]) -> None:
    assert said["again"] == said["chat"]["text"] != said["other"]
    first, second = said["several"]
    assert first == said["chat"]["text"] != second


def test_likelihoods(said: dict[str, Any]) -> None:
    tokens = said["likelihoods"]
    assert "".join(token["token"] for token in tokens) == said["chat"]["text"]
    assert all(token["logprob"] <= 0 and token["numLikeliest"] == 2 for token in tokens)


def test_responses(said: dict[str, Any]) -> None:
    told = said["responses"]
    texts = told["texts"]
    assert texts["whole"]
    assert texts["whole"] == texts["streamed"] == texts["found"]
    assert (told["kinds"][0], told["kinds"][-1]) == ("response.created", "response.completed")
    assert told["roles"] == ["user", "assistant", "user"]
    conversation = (("user", "Hello"), ("assistant", texts["whole"]), ("user", "And?"))
    assert told["usage"]["input_tokens"] == len(prompt_ids(*conversation))
    assert (told["gone"]["kind"], told["gone"]["code"]) == ("NotFoundError", "response_not_found")


def test_conversations(said: dict[str, Any]) -> None:
    told = said["conversation"]
    one, two = told["answers"]
    assert one
    assert two
    assert told["said"] == ["Hello", "One?", one, "Two?", two, "Thanks."]
    assert (told["isFound"], told["deleted"], told["metadata"]) == (True, True, [{"topic": "demo"}] * 2)
    assert (told["gone"]["kind"], told["gone"]["code"]) == ("NotFoundError", "conversation_not_found")


def test_models_and_names_of_requests(said: dict[str, Any]) -> None:
    assert set(said["models"]) == {MODEL, ALIAS}
    assert said["model"] == MODEL
    assert said["requestId"]


@pytest.mark.parametrize(
    ("case", "kind", "status", "code", "param"),
    [
        ("badRequest", "BadRequestError", 400, "invalid_value", "temperature"),
        ("tools", "BadRequestError", 400, "unsupported_parameter", "tools[0].type"),
        ("overflow", "BadRequestError", 400, "context_length_exceeded", "messages"),
        ("authentication", "AuthenticationError", 401, "invalid_api_key", None),
        ("permission", "PermissionDeniedError", 403, "permission_denied", None),
        ("notFound", "NotFoundError", 404, "model_not_found", "model"),
        ("rateLimit", "RateLimitError", 429, "quota_exceeded", None),
        ("noWorker", "InternalServerError", 503, "no_worker", None),
    ],
)
def test_errors(said: dict[str, Any], case: str, kind: str, status: int, code: str, param: str | None) -> None:
    error = said["errors"][case]
    assert error.items() >= {"kind": kind, "status": status, "code": code, "param": param, "isNamed": True}.items()
    assert (error["retryAfter"] is not None) == (status in (429, 503))
