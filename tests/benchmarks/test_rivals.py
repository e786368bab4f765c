"""What benches build and start of other engines, but for llama.cpp, which takes minutes to build."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from httpx_sse import EventSource

from kakeya_bench.rivals.command import CommandFailed, RivalFailed, run_logged
from kakeya_bench.rivals.process import CallFailed, own_process
from kakeya_bench.rivals.server import Command, Rival, running
from kakeya_bench.rivals.transformers_server import transformers_server
from tests.checkpoints import greedy_tokens, make_qwen3, transformers_model

PROMPT = [1, 2, 3]
NUM_TOKENS = 40
NUM_POSITIONS = 1_000_000
CALL_SECONDS = 60.0

pytestmark = pytest.mark.timeout(300)  # a rival imports torch, which takes long on a busy machine


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_qwen3(tmp_path_factory.mktemp("checkpoint"), max_position_embeddings=NUM_POSITIONS)


@pytest.fixture(scope="module")
def rival(checkpoint: Path) -> Iterator[Rival]:
    with transformers_server(checkpoint, num_threads=1) as made:
        yield made


@pytest.fixture
def healthy(tmp_path: Path) -> Callable[[int], Command]:
    """A rival that answers /health and knows no model."""
    (tmp_path / "health").touch()
    flags = ["--bind", "127.0.0.1", "--directory", str(tmp_path)]
    return lambda port: [sys.executable, "-m", "http.server", str(port), *flags]


@contextmanager
def answering(rival: Rival, body: dict[str, Any] | str) -> Iterator[httpx.Response]:
    """The response to a completion request, whose body is yet to be read."""
    content = body if isinstance(body, str) else json.dumps(body)
    url = f"{rival.url}/v1/completions"
    with httpx.stream("POST", url, content=content, timeout=CALL_SECONDS, trust_env=False) as response:
        yield response


def asking(**fields: Any) -> dict[str, Any]:
    body = {"model": "m", "prompt": PROMPT, "max_tokens": NUM_TOKENS, "temperature": 0, "stream": True}
    return {**body, "ignore_eos": True, **fields}


def events(response: httpx.Response) -> Iterator[str]:
    """The data of each event, as it comes."""
    return (event.data for event in EventSource(response).iter_sse())


def test_streams_the_greedy_tokens_of_transformers_one_event_each(rival: Rival, checkpoint: Path) -> None:
    with answering(rival, asking()) as response:
        assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream")
        *tokens, end, done = events(response)
    expected = greedy_tokens(transformers_model(checkpoint), PROMPT, NUM_TOKENS)
    choices = [json.loads(event)["choices"][0] for event in tokens]
    assert [choice["text"] for choice in choices] == [f"<{token_id}>" for token_id in expected]
    assert {choice["finish_reason"] for choice in choices} == {None}
    assert not any("token_ids" in choice for choice in choices)
    last = json.loads(end)
    assert (last["choices"][0]["text"], last["choices"][0]["finish_reason"], last["model"]) == ("", "length", "m")
    assert last["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": NUM_TOKENS,
        "total_tokens": NUM_TOKENS + 3,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert done == "[DONE]"


def test_tells_token_ids_where_they_are_asked_for(rival: Rival, checkpoint: Path) -> None:
    with answering(rival, asking(max_tokens=3, return_token_ids=True)) as response:
        choices = [json.loads(event)["choices"][0] for event in list(events(response))[:3]]
    expected = greedy_tokens(transformers_model(checkpoint), PROMPT, 3)
    assert [choice["token_ids"] for choice in choices] == [[token_id] for token_id in expected]


def test_sends_each_token_when_it_is_generated(rival: Rival) -> None:
    began = time.monotonic()
    with answering(rival, asking(max_tokens=200, stream_options={"include_usage": True})) as response:
        moments = [time.monotonic() for _ in events(response)]
    assert len(moments) == 202
    assert moments[0] - began < (moments[-1] - began) / 2, "the first is there long before the last"


def test_gives_up_an_answer_whose_client_leaves(rival: Rival) -> None:
    with answering(rival, asking(max_tokens=NUM_POSITIONS - 3)) as response:  # hours of it
        assert next(events(response))
    with answering(rival, asking(max_tokens=1)) as response:
        assert list(events(response))[-1] == "[DONE]"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{", "Invalid JSON"),
        ("[]", "object"),
        (asking(prompt=[]), "prompt"),
        (asking(prompt="Hello"), "prompt"),
        (asking(prompt=[1, True]), "prompt.1"),
        (asking(prompt=[1, 512]), "512 is no token id"),
        (asking(prompt=[-1]), "-1 is no token id"),
        (asking(max_tokens=0), "max_tokens"),
        (asking(max_tokens=NUM_POSITIONS - 2), f"{NUM_POSITIONS} positions"),
        (asking(temperature=0.5), "temperature"),
        (asking(stream=False), "stream"),
        (asking(ignore_eos=False), "ignore_eos"),
        (asking(top_p=0.5), "top_p"),
    ],
)
def test_refuses_what_it_would_not_do(rival: Rival, body: dict[str, Any] | str, message: str) -> None:
    with answering(rival, body) as response:
        assert response.status_code == 400
        error = json.loads(response.read())["error"]
    assert error["type"] == "invalid_request_error"
    assert message in error["message"]


def test_a_rival_is_ready_when_it_is_handed_over_and_gone_afterwards(healthy: Callable[[int], Command]) -> None:
    with running(healthy) as rival:
        assert httpx.get(f"{rival.url}/health", timeout=CALL_SECONDS).status_code == 200
        assert psutil.pid_exists(rival.pid)
    assert not psutil.pid_exists(rival.pid)


def test_says_why_a_rival_did_not_start() -> None:
    with (
        pytest.raises(RivalFailed, match=r"(?s)status 1.*no such model"),
        running(lambda port: [sys.executable, "-c", "raise SystemExit('no such model')"]),
    ):
        pytest.fail("it is not there")


def test_says_that_a_rival_died_rather_than_that_its_connection_broke(healthy: Callable[[int], Command]) -> None:
    with (
        pytest.raises(RivalFailed, match="status -9") as raised,
        running(healthy) as rival,
    ):
        os.kill(rival.pid, signal.SIGKILL)
        httpx.get(rival.url, timeout=CALL_SECONDS)
    assert isinstance(raised.value.__cause__, httpx.TransportError)


def test_what_the_client_did_wrong_is_not_the_rivals_fault(healthy: Callable[[int], Command]) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        running(healthy),
    ):
        _ = 1 / 0


def test_quotes_the_log_of_a_build_that_failed(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    run_logged([sys.executable, "-c", "print('configured')"], log)
    with pytest.raises(CommandFailed, match=r"(?s)status 3.*no compiler"):
        run_logged([sys.executable, "-c", "print('no compiler'); raise SystemExit(3)"], log)
    assert log.read_text() == "configured\nno compiler\n"


def test_calls_run_in_a_process_of_their_own_that_finds_further_packages(tmp_path: Path) -> None:
    (tmp_path / "kept.py").write_text("found = []\ndef keep(word):\n    found.append(word)\n    return found\n")
    with own_process(tmp_path) as process:
        assert process.call("os:getpid") == process.pid != os.getpid()
        assert process.call("kept:keep", "a") == ["a"]
        assert process.call("kept:keep", word="b") == ["a", "b"]
        with pytest.raises(CallFailed, match=r"(?s)kept:found.remove failed.*not in list"):
            process.call("kept:found.remove", "c")
        with pytest.raises(CallFailed, match="No module named 'nowhere'"):
            process.call("nowhere:function")


def test_says_that_a_process_of_its_own_ended() -> None:
    with own_process() as process, pytest.raises(CallFailed, match=r"(?s)process of os:abort ended.*Fatal"):
        process.call("faulthandler:enable")
        process.call("os:abort")
