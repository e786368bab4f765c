"""The paths that peers have, as their clients ask for them."""

import asyncio
from importlib import metadata
from pathlib import Path

import pytest

from kakeya_http_shim.models.served_models import ServedModels
from tests.unit.http_shim.shim import HELLO, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails

GUARDED = [
    *(("GET", path) for path in ("/v1/models", "/models", "/models/", "/models/counter", "/version", "/version/")),
    *(("POST", path) for path in ("/chat/completions", "/v1/chat/completions/", "/completions", "/completions/")),
    *(("POST", path) for path in ("/responses", "/v1/responses/", "/conversations", "/v1/conversations/")),
    *(("POST", path) for path in ("/tokenize", "/tokenize/", "/detokenize", "/apply-template")),
]


@pytest.mark.parametrize("path", ["/chat/completions", "/v1/chat/completions/", "/chat/completions/"])
async def test_a_chat_by_other_paths(shim: Shim, path: str) -> None:
    shim.will_say("Hi!")
    response = await shim.http.post(path, json={"messages": HELLO})
    assert response.json()["choices"][0]["message"]["content"] == "Hi!"


@pytest.mark.parametrize("path", ["/completions", "/v1/completions/"])
async def test_a_completion_by_other_paths(shim: Shim, path: str) -> None:
    shim.will_say("Hi!")
    response = await shim.http.post(path, json={"prompt": "Once"})
    assert response.json()["choices"][0]["text"] == "Hi!"


@pytest.mark.parametrize("path", ["/models", "/v1/models/"])
async def test_models_by_other_paths(shim: Shim, path: str) -> None:
    assert (await shim.http.get(path)).json() == (await shim.http.get("/v1/models")).json()
    assert (await shim.http.get(f"{path.rstrip('/')}/counter/")).json()["id"] == "counter"


@pytest.mark.parametrize(("method", "path"), GUARDED)
async def test_a_bad_key_gets_nothing(shim: Shim, method: str, path: str) -> None:
    shim.runtime.before["ListModels"].append(fails("UNAUTHENTICATED"))
    response = await shim.http.request(method, path, headers={"authorization": "Bearer bad"}, json={})
    assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")


@pytest.mark.parametrize("path", ["/health", "/health/", "/ping", "/readyz"])
async def test_health_is_open_and_says_whether_a_worker_serves(shim: Shim, path: str) -> None:
    await shim.loaded()
    assert (await shim.http.get(path)).json() == {"status": "ok"}
    assert (await shim.http.head(path)).status_code == 200
    shim.runtime.models.clear()
    await asyncio.sleep(1.1)  # a listing answers for a second
    response = await shim.http.get(path)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "no_worker")
    assert response.headers["retry-after"] == "1"


async def test_not_healthy_before_the_tokenizers_are_loaded(
    runtime: ScriptedRuntime, tokenizer_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, may_load = ServedModels.load, asyncio.Event()

    async def later(models: ServedModels) -> None:
        await may_load.wait()
        await load(models)

    monkeypatch.setattr(ServedModels, "load", later)
    async with serving_shim(runtime, tokenizer_dir) as shim:
        response = await shim.http.get("/health")
        assert (response.status_code, response.json()["error"]["code"]) == (503, "loading")
        assert (await shim.http.get("/healthz")).status_code == 200, "the process is alive"
        may_load.set()
        await shim.loaded()
        assert (await shim.http.get("/health")).status_code == 200


async def test_the_root_says_that_the_process_is_alive(shim: Shim) -> None:
    response = await shim.http.head("/")
    assert (response.status_code, response.content) == (200, b"")
    assert (await shim.http.get("/")).json() == {"status": "ok"}


async def test_the_version(shim: Shim) -> None:
    assert (await shim.http.get("/version")).json() == {"version": metadata.version("kakeya-http-shim")}


async def test_other_methods(shim: Shim) -> None:
    for path in ("/tokenize", "/detokenize", "/apply-template"):
        response = await shim.http.get(path)
        assert (response.status_code, response.json()["error"]["code"]) == (405, "method_not_allowed")
