"""LiteLLM's proxy between a client and Kakeya: calls, streams, and turns that are continued."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.agents.results import Results
from tests.clients.environments import program
from tests.integration.processes import LONG_SECONDS, http_status, wait_until
from tests.loops import played_verifier
from tests.loops.calls import call_text, call_tokens
from tests.loops.judging import outcome
from tests.loops.stage import Stage
from tests.ports import free_port

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]
_KEY = "sk-of-the-proxy"
_ALIVE = "/health/liveliness"
_TOOL: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture(scope="module")
def proxy(made_stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    directory = tmp_path_factory.mktemp("proxy")
    name = made_stage.models["Coder"].family.model
    there = {"model": f"openai/{name}", "api_base": made_stage.base_url, "api_key": "none"}
    configuration = {
        "model_list": [{"model_name": name, "litellm_params": there}],
        "general_settings": {"master_key": _KEY},
    }
    (directory / "config.yaml").write_text(json.dumps(configuration))
    address, log = f"127.0.0.1:{free_port()}", directory / "log"
    command = [program("litellm-proxy", "litellm"), "--config", str(directory / "config.yaml")]
    command += ["--host", "127.0.0.1", "--port", address.rpartition(":")[2], "--telemetry", "False"]
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "HOME": str(directory)}
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=directory, env=environment, stdout=output, stderr=output)
    try:
        wait_until(
            lambda: process.poll() is not None or http_status(address, _ALIVE) == 200, f"the proxy is ready; see {log}"
        )
        assert process.poll() is None, log.read_text()[-4000:]
        yield address
    finally:
        process.terminate()
        process.wait(LONG_SECONDS)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streams"])
def test_calls_through_the_proxy(agents_stage: Stage, proxy: str, results: Results, streams: bool) -> None:
    model = agents_stage.models["Coder"]
    texts = [call_text("Coder", ("get_weather", {"city": "Bern"})), "Sun.", "Rain."]
    played_verifier.play(model.folder, [call_tokens(model, text) for text in texts])
    messages: list[Any] = [{"role": "user", "content": f"{streams}: how is Bern?"}]
    told: dict[str, Any] = {"model": model.family.model, "messages": messages, "tools": [_TOOL], "max_tokens": 200}
    with openai.OpenAI(base_url=f"http://{proxy}/v1", api_key=_KEY, max_retries=0) as client:

        def ask() -> Any:
            if not streams:
                return client.chat.completions.create(**told).choices[0].message
            with client.chat.completions.stream(**told) as stream:
                return stream.get_final_completion().choices[0].message

        called = ask()
        (call,) = called.tool_calls
        assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Bern"})
        messages += [called, {"role": "tool", "tool_call_id": call.id, "content": "5 degrees"}]
        answered = ask()
        assert answered.content == "Sun."
        messages += [answered, {"role": "user", "content": "And Basel?"}]
        assert ask().content == "Rain."
    exchanges = agents_stage.recorder.take()
    found = outcome(exchanges)
    results.add(f"LiteLLM's proxy {_version()}", "/v1/chat/completions", exchanges[0], found)
    assert (found.num_turns, found.reasons) == (2, {})


def _version() -> str:
    installed = Path(program("litellm-proxy", "python")).parents[1]
    (found,) = installed.glob("lib/python3*/site-packages/litellm-*.dist-info")
    return found.name.removeprefix("litellm-").removesuffix(".dist-info")
