"""Errors in Anthropic's shape, of whatever finds them."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from kakeya_http_shim import error_shapes
from kakeya_http_shim.problems import ApiError, context_length_exceeded
from kakeya_http_shim.routes.generation_routes import ChatRoute
from tests.unit.http_shim.messages_api.asking import COUNT, MESSAGES, ask
from tests.unit.http_shim.shim import HELLO, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails

BODY = {"messages": HELLO, "max_tokens": 1}


def kind_of(response: httpx.Response) -> str:
    """Of an error, which is in the shape of that API."""
    error = response.json()
    assert error.keys() == {"type", "error", "request_id"}
    assert (error["type"], error["error"].keys()) == ("error", {"type", "message"})
    assert error["error"]["message"]
    assert error["request_id"] == response.headers["request-id"] == response.headers["x-request-id"]
    return str(error["error"]["type"])


@pytest.mark.parametrize("path", [MESSAGES, COUNT])
@pytest.mark.parametrize(
    ("headers", "body", "status", "kind"),
    [
        ({"host": "elsewhere"}, b"{}", 400, "invalid_request_error"),
        ({"authorization": "Basic dTpw"}, b"{}", 401, "authentication_error"),
        ({"x-api-key": "a b"}, b"{}", 401, "authentication_error"),
        ({"content-encoding": "br"}, b"{}", 415, "invalid_request_error"),
        ({"content-type": "text/plain"}, b"{}", 415, "invalid_request_error"),
        ({}, bytes(9 << 20), 413, "request_too_large"),
        ({"content-type": "application/json"}, b"{", 400, "invalid_request_error"),
        ({"content-type": "application/json"}, b"{}", 400, "invalid_request_error"),
    ],
)
async def test_of_the_request_itself(
    shim: Shim, path: str, headers: dict[str, str], body: bytes, status: int, kind: str
) -> None:
    response = await shim.http.post(path, content=body, headers=headers)
    assert (response.status_code, kind_of(response)) == (status, kind)


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", MESSAGES, 405, "invalid_request_error"),
        ("GET", COUNT, 405, "invalid_request_error"),
        ("POST", f"{MESSAGES}/batches", 404, "not_found_error"),
    ],
)
async def test_of_paths_and_methods(shim: Shim, method: str, path: str, status: int, kind: str) -> None:
    response = await shim.http.request(method, path)
    assert (response.status_code, kind_of(response)) == (status, kind)
    assert ("allow" in response.headers) == (status == 405)


async def test_of_a_model_that_is_not_there(shim: Shim) -> None:
    response = await ask(shim, model="claude-opus-9")
    assert (response.status_code, kind_of(response)) == (404, "not_found_error")
    assert response.json()["error"]["message"] == "model: the model 'claude-opus-9' does not exist"


@pytest.mark.parametrize(
    ("reason", "status", "kind"),
    [
        ("QUOTA_EXCEEDED", 429, "rate_limit_error"),
        ("PERMISSION_DENIED", 403, "permission_error"),
        ("INTERNAL", 500, "api_error"),
    ],
)
async def test_of_the_runtime(shim: Shim, reason: str, status: int, kind: str) -> None:
    shim.runtime.before["CreateSession"].append(fails(reason))
    response = await ask(shim)
    assert (response.status_code, kind_of(response)) == (status, kind)
    assert ("retry-after" in response.headers) == (status == 429)


async def test_a_prompt_that_is_too_long_says_so_as_agents_look_for_it(
    runtime: ScriptedRuntime, tokenizer_dir: Path
) -> None:
    async with serving_shim(runtime, tokenizer_dir, "--max-prompt-tokens", "4") as shim:
        for response in (await ask(shim), await shim.http.post(COUNT, json={"messages": HELLO})):
            assert (response.status_code, kind_of(response)) == (400, "invalid_request_error")
            assert response.json()["error"]["message"].startswith("prompt is too long: ")


async def test_what_nobody_foresaw(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> None:
        raise RuntimeError("internals")

    monkeypatch.setattr(ChatRoute, "_asks", fail)
    response = await ask(shim)
    assert (response.status_code, kind_of(response)) == (500, "api_error")
    assert "internals" not in response.text


async def test_the_end_of_the_server(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    runtime.hold_after = 0
    async with serving_shim(runtime, tokenizer_dir) as shim:
        asking = asyncio.create_task(ask(shim))
        await asyncio.to_thread(runtime.wait_for, lambda: "Generate" in runtime.requests)
        shim.stop.set()
        response = await asking
        assert (response.status_code, kind_of(response)) == (503, "overloaded_error")


def test_other_paths_have_openais_shape() -> None:
    error = context_length_exceeded("too long")
    for path in ("/v1/messagesx", "/v1/chat/completions", ""):
        assert error_shapes.response(error, {"path": path}).body == error_shapes.body(error, {})
    assert b'"code":"context_length_exceeded"' in error_shapes.body(error, {})
    assert error_shapes.response(ApiError(401, "who?"), {}).headers["www-authenticate"] == "Bearer"
