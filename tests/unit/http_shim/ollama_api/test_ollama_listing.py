"""What Ollama's API says of models, and what of it is refused."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Message

from kakeya_http_shim import error_shapes
from kakeya_http_shim.ollama_api.described_models import OllamaList, OllamaRunningList, OllamaShown, OllamaVersion
from kakeya_http_shim.problems import ApiError, context_length_exceeded
from kakeya_http_shim.routes.ollama_routes import NOT_SERVED, OllamaChats, OllamaPrompts, OllamaShow
from tests.unit.http_shim.ollama_api.asking import GENERATE, OLLAMA_CHAT, SHOW, ask
from tests.unit.http_shim.shim import MODEL, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk import families
from tests.unit.sdk.scripted_runtime import SINK, VOCAB_SIZE, WINDOW, ScriptedRuntime, fails

_POSTED = [OLLAMA_CHAT, GENERATE, SHOW]


def error_of(response: httpx.Response) -> str:
    """In the shape of that API."""
    assert response.json().keys() == {"error"}
    assert response.headers["x-request-id"]
    return str(response.json()["error"])


async def test_models(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    async with serving_shim(runtime, tokenizer_dir, "--served-model-name", f"other:7b={MODEL}") as shim:
        tags = await shim.http.get("/api/tags")
        listed = OllamaList.model_validate_json(tags.content, strict=True).models
        assert [each.name for each in listed] == [each.model for each in listed] == [f"{MODEL}:latest", "other:7b"]
        running = OllamaRunningList.model_validate_json((await shim.http.get("/api/ps")).content, strict=True).models
        assert [each.name for each in running] == [each.name for each in listed]
        assert {each.context_length for each in running} == {runtime.models[0].lane_token_count}
        for each in listed:
            assert (await ask(shim, model=each.name, options={"num_predict": 1})).status_code == 200
            assert (await shim.http.post(SHOW, json={"model": each.name})).status_code == 200


async def test_one_model(shim: Shim) -> None:
    for named in ({"model": MODEL}, {"name": f"{MODEL}:latest", "verbose": True}):
        shown = OllamaShown.model_validate_json((await shim.http.post(SHOW, json=named)).content, strict=True)
        assert shown.capabilities == ["completion"]
        assert "im_start" in shown.template
        architecture = shown.model_info["general.architecture"]
        sizes = {name: shown.model_info[f"{architecture}.{name}"] for name in ("vocab_size", "context_length")}
        assert sizes == {"vocab_size": VOCAB_SIZE, "context_length": shim.runtime.models[0].lane_token_count}
        assert {shown.model_info["kakeya.sink"], shown.model_info["kakeya.window"]} <= {0, SINK, WINDOW}


async def test_what_a_model_can(roomy: ScriptedRuntime, tmp_path: Path) -> None:
    families.save(tmp_path, families.ONES["qwen3"])
    async with serving_shim(roomy, tmp_path) as shim:
        shown = (await shim.http.post(SHOW, json={"model": MODEL})).json()
        assert shown["capabilities"] == ["completion", "tools", "thinking"]


async def test_the_version(shim: Shim) -> None:
    for method in ("GET", "HEAD"):
        assert (await shim.http.request(method, "/api/version")).status_code == 200
        assert (await shim.http.request(method, "/")).status_code == 200
    told = OllamaVersion.model_validate_json((await shim.http.get("/api/version/")).content, strict=True)
    assert all(part.isdigit() for part in told.version.split("."))
    assert told.kakeya == (await shim.http.get("/version")).json()["version"]


@pytest.mark.parametrize("path", NOT_SERVED)
async def test_what_is_not_served(shim: Shim, path: str) -> None:
    path = path.replace("{digest}", "sha256:00")
    method = "DELETE" if path == "/api/delete" else "POST"
    response = await shim.http.request(method, path, json={"model": MODEL, "stream": False})
    assert response.status_code == 501
    assert error_of(response).startswith(f"{path} is not supported: ")
    response = await shim.http.request("PUT", path)
    assert (response.status_code, "Method Not Allowed" in error_of(response)) == (405, True)


@pytest.mark.parametrize("path", _POSTED)
@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"host": "elsewhere"}, b"{}", 400),
        ({"authorization": "Basic dTpw"}, b"{}", 401),
        ({"content-encoding": "br"}, b"{}", 415),
        ({"content-type": "text/plain"}, b"{}", 415),
        ({}, bytes(9 << 20), 413),
        ({"content-type": "application/json"}, b"{", 400),
        ({"content-type": "application/json"}, b"{}", 400),
    ],
)
async def test_errors_of_the_request_itself(
    shim: Shim, path: str, headers: dict[str, str], body: bytes, status: int
) -> None:
    response = await shim.http.post(path, content=body, headers=headers)
    assert (response.status_code, bool(error_of(response))) == (status, True)


@pytest.mark.parametrize("route", [OllamaChats, OllamaPrompts, OllamaShow])
async def test_a_client_that_leaves_before_it_has_said_all(route: type[Any]) -> None:
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        raise AssertionError(message)

    await route(None)({"type": "http", "headers": [(b"content-type", b"application/json")]}, receive, send)


async def test_errors_of_paths_and_models(shim: Shim) -> None:
    for path in ("/api/other", "/api/"):
        assert "Not Found" in error_of(await shim.http.get(path))
    for path in _POSTED:
        body: dict[str, Any] = {"model": "other"}
        response = await shim.http.post(path, json=body)
        assert (response.status_code, error_of(response)) == (404, "model: the model 'other' does not exist")
    assert error_of(await shim.http.post(SHOW, json={"verbose": True})) == "model: name one"


async def test_errors_of_the_runtime(shim: Shim) -> None:
    shim.runtime.before["CreateSession"].append(fails("QUOTA_EXCEEDED"))
    response = await ask(shim)
    assert (response.status_code, bool(error_of(response))) == (429, True)
    assert response.headers["retry-after"]
    shim.runtime.before["CreateSession"].append(fails("INVALID_FIELD", field="grammar.json_schema", part="create"))
    assert error_of(await ask(shim, format={"type": "object"})).startswith("format: ")


def test_the_shape_of_errors() -> None:
    scope = {"path": "/api/chat"}
    assert error_shapes.body(context_length_exceeded("too long"), scope) == b'{"error":"messages: too long"}'
    assert error_shapes.body(ApiError(400, "n: no", param="n"), scope) == b'{"error":"n: no"}'
    assert error_shapes.body(ApiError(400, "no"), {"path": "/apis"}) != b'{"error":"no"}'


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"messages": [{"role": "user", "content": "a", "images": ["aGVsbG8="]}]}, "messages[0].images: not supported"),
        ({"messages": [{"role": "developer", "content": "a"}]}, "messages[0].role: must be one of system, user"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}, "messages[0].content: "),
        ({"messages": [{"role": "assistant", "content": ""}]}, "messages: there is nothing to answer"),
        ({"options": {"num_predict": "5"}}, "options.num_predict: "),
        ({"options": {"temprature": 1}}, "unknown field options.temprature"),
        ({"options": {"temperature": 3}}, "options.temperature: "),
        ({"format": "xml"}, "format: "),
        ({"format": "json", "kakeya": {"regex": "a"}}, "format: not together with kakeya.regex"),
        ({"think": "none"}, "think: "),
        ({"keep_alive": "soon"}, "keep_alive: "),
        ({"top_logprobs": 3}, "top_logprobs: only with logprobs"),
        ({"response_format": {"type": "json_object"}}, "unknown field response_format"),
    ],
)
async def test_what_is_refused_by_name(shim: Shim, fields: dict[str, Any], message: str) -> None:
    response = await ask(shim, **fields)
    assert response.status_code == 400
    assert message in error_of(response)


async def test_an_empty_answer_at_the_end_is_left_out(shim: Shim) -> None:
    messages = [{"role": "user"}, {"role": "assistant", "thinking": "hm"}]
    await ask(shim, messages=messages, options={"num_predict": 1})
    given = list(shim.runtime.requests["AppendTokens"][-1].token_ids)
    written = shim.tokenizer.decode(given, special_tokens=True)
    assert written == "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n"
