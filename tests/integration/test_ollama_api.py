"""Ollama's API on a whole stack that asks for keys: what is said, what it took, and where it goes on."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from tests.integration.http_stack import HttpStack, http_stack, prompt_ids, text_ids
from tests.integration.open_http import MODEL
from tests.unit.http_shim.ollama_api.asking import put_together, read

CHAT = "/api/chat"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpStack]:
    directory = tmp_path_factory.mktemp("ollama")
    flags = ("--live-sessions", "on")
    with http_stack(directory, *flags, KAKEYA_WORKER_SNAPSHOTS=str(directory / "snapshots")) as made:
        yield made


@pytest.fixture
async def client(stack: HttpStack) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {stack.key}"}
    base_url = stack.base_url.removesuffix("/v1")
    async with httpx.AsyncClient(base_url=base_url, headers=headers, timeout=60) as client:
        yield client


def body(messages: list[Any], **fields: Any) -> dict[str, Any]:
    options = {"temperature": 0, "num_predict": 40}
    return {"model": f"{MODEL}:latest", "messages": messages, "options": options, "stream": False, **fields}


async def ask(client: httpx.AsyncClient, messages: list[Any], **fields: Any) -> Any:
    response = await client.post(CHAT, json=body(messages, **fields))
    assert response.status_code == 200, response.text
    return response.json()


async def test_ten_turns_append_their_own_tokens(client: httpx.AsyncClient) -> None:
    messages: list[Any] = [{"role": "system", "content": "Be brief."}]
    said = [("system", "Be brief.")]
    sessions = set()
    for number in range(10):
        text = f"What is {number} plus {number}?"
        messages.append({"role": "user", "content": text})
        said.append(("user", text))
        # The last of them is parked behind each answer, and comes back for the next.
        answer = await ask(client, messages, keep_alive=0 if number > 6 else "5m")
        session = answer["kakeya"]["session"]
        sessions.add(session["id"])
        assert answer["prompt_eval_count"] == len(prompt_ids(*said))
        if number:
            assert (session["state"], session["why"]) == ("continued", "next-turn")
            behind = f"\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
            assert session["appended"] == len(text_ids(behind))
        messages.append(answer["message"])
        said.append(("assistant", answer["message"]["content"]))
    assert len(sessions) == 1


async def test_a_stream_is_the_whole_answer(client: httpx.AsyncClient) -> None:
    messages = [{"role": "user", "content": "Tell me a story, please."}]
    whole = await ask(client, messages)
    response = await client.post(CHAT, json=body(messages, stream=None))
    assert response.headers["content-type"] == "application/x-ndjson"
    told = put_together(read(response.text))
    for name in ("message", "done_reason", "eval_count", "prompt_eval_count"):
        assert told[name] == whole[name]
    assert whole["message"]["content"]


async def test_an_answer_of_a_form(client: httpx.AsyncClient) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}
    schema["additionalProperties"] = False
    answer = await ask(client, [{"role": "user", "content": "Choose."}], format=schema)
    assert json.loads(answer["message"]["content"])["a"] in ("x", "y")
    response = await client.post(CHAT, json=body([{"role": "user", "content": "a"}], format={"type": "nonsense"}))
    assert (response.status_code, response.json()["error"][:8]) == (400, "format: ")


async def test_prompts(client: httpx.AsyncClient) -> None:
    prompt = {"model": MODEL, "prompt": "What is 2 plus 2?", "options": {"temperature": 0, "num_predict": 40}}
    whole = (await client.post("/api/generate", json={**prompt, "stream": False})).json()
    streamed = put_together(read((await client.post("/api/generate", json=prompt)).text))
    chat = await ask(client, [{"role": "user", "content": prompt["prompt"]}])
    assert streamed["response"] == whole["response"] == chat["message"]["content"]
    assert whole["prompt_eval_count"] == chat["prompt_eval_count"]


async def test_models(client: httpx.AsyncClient) -> None:
    listed = (await client.get("/api/tags")).json()["models"]
    assert f"{MODEL}:latest" in [each["name"] for each in listed]
    running = {each["name"]: each["context_length"] for each in (await client.get("/api/ps")).json()["models"]}
    shown = (await client.post("/api/show", json={"model": MODEL})).json()
    assert shown["model_info"]["kakeya.context_length"] == running[f"{MODEL}:latest"] > 0


async def test_who_has_no_key(stack: HttpStack) -> None:
    base_url = stack.base_url.removesuffix("/v1")
    async with httpx.AsyncClient(base_url=base_url, timeout=60) as stranger:
        for method, path in (("POST", CHAT), ("GET", "/api/tags"), ("POST", "/api/pull")):
            response = await stranger.request(method, path, json={} if method == "POST" else None)
            assert (response.status_code, response.json().keys()) == (401, {"error"})
