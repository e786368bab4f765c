"""The shim as a whole: what every answer carries, and what it says of itself at the start."""

import runpy
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kakeya_http_shim.command import main
from kakeya_http_shim.middleware.deprecation import Deprecation
from kakeya_http_shim.program import announce
from kakeya_http_shim.settings import HttpSettings
from kakeya_shared.settings.addresses import HostPort
from tests.unit.http_shim.shim import HELLO
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk.scripted_runtime import ScriptedRuntime


async def test_deprecation(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    flags = ("--deprecated-since", "2026-11-01", "--sunset", "2027-06-30", "--successor", "https://example.com/grpc")
    async with serving_shim(runtime, tokenizer_dir, *flags) as shim:
        for path in ("/v1/models", "/nothing", "/healthz"):
            headers = (await shim.http.get(path)).headers
            assert headers["deprecation"] == "@1793491200"
            assert headers["sunset"] == "Wed, 30 Jun 2027 00:00:00 GMT"
            assert headers["link"] == '<https://example.com/grpc>; rel="successor-version"'


async def test_no_page_of_another_origin(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    asked = {"origin": "https://chat.example.com", "access-control-request-method": "POST"}
    async with serving_shim(runtime, tokenizer_dir) as shim:
        assert "access-control-allow-origin" not in (await shim.http.get("/v1/models", headers=asked)).headers
    async with serving_shim(runtime, tokenizer_dir, "--cors-origins", "https://chat.example.com") as shim:
        preflight = await shim.http.options("/v1/chat/completions", headers=asked)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == "https://chat.example.com"
        answer = await shim.http.post(
            "/v1/chat/completions", headers=asked, json={"messages": HELLO, "max_tokens": 1, "temperature": 0}
        )
        assert answer.headers["access-control-allow-origin"] == "https://chat.example.com"
        assert "kakeya-session" in answer.headers["access-control-expose-headers"]
        wanted = asked | {"access-control-request-headers": "kakeya-session-id, kakeya-session, content-type"}
        assert (await shim.http.options("/v1/chat/completions", headers=wanted)).status_code == 200
        refused = await shim.http.options("/v1/chat/completions", headers=asked | {"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in refused.headers


@pytest.mark.parametrize("media_type", [None, "text/plain", "application/x-www-form-urlencoded"])
async def test_what_any_page_may_send_is_refused(
    runtime: ScriptedRuntime, tokenizer_dir: Path, media_type: str | None
) -> None:
    async with serving_shim(runtime, tokenizer_dir) as shim:
        headers = {"content-type": media_type} if media_type else {}
        response = await shim.http.post("/v1/completions", content=b'{"prompt": "a"}', headers=headers)
        assert (response.status_code, response.json()["error"]["code"]) == (415, "unsupported_media_type")
        json_type = {"content-type": "Application/JSON; charset=utf-8"}
        answer = await shim.http.post("/v1/completions", content=b'{"prompt": "a", "max_tokens": 1}', headers=json_type)
        assert answer.status_code == 200


async def test_hosts(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    async with serving_shim(runtime, tokenizer_dir) as shim:
        response = await shim.http.get("/v1/models", headers={"host": "evil.example"})
        assert response.status_code == 400
        assert not runtime.requests["ListModels"]


async def test_large_bodies(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    async with serving_shim(runtime, tokenizer_dir, "--max-body-bytes", "1024") as shim:
        response = await shim.chat(user="x" * 2000)
        assert (response.status_code, response.json()["error"]["code"]) == (413, "request_too_large")


async def test_no_redirects(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    async with serving_shim(runtime, tokenizer_dir) as shim:
        assert (await shim.http.post("/v1/completions/")).status_code == 415, "as without the slash"


async def test_metrics(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    async with serving_shim(runtime, tokenizer_dir) as shim:
        await shim.chat(max_tokens=3)
        await shim.http.get("/v1/models/none")
        said = (await shim.http.get("/metrics")).text
    assert 'requests_total{method="POST",route="/v1/chat/completions",status="200"} 1.0' in said
    assert 'route="/v1/models/{id:path}",status="404"} 1.0' in said
    assert "kakeya_http_completion_tokens_total 3.0" in said
    assert "kakeya_http_time_to_first_token_seconds_count 1.0" in said
    assert "kakeya_http_time_per_output_token_seconds_count 1.0" in said


@pytest.mark.parametrize("flag", ["--router-ca", "--tls-cert"])
def test_certificates_that_are_not_there(flag: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    more = ["--tls-key", str(tmp_path / "no-key")] if flag == "--tls-cert" else []
    assert main([flag, str(tmp_path / "none"), *more, "--bind", "127.0.0.1:0"]) == 78
    assert "No such file" in capfd.readouterr().err.splitlines()[-1]


def test_a_certificate_of_the_router_that_is_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("nothing")
    assert main(["--router-ca", str(bad), "--bind", "127.0.0.1:0"]) == 78
    assert "holds no certificates in PEM" in capfd.readouterr().err


def test_the_module_is_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["kakeya_http_shim", "--help"])
    with pytest.raises(SystemExit) as raised:
        runpy.run_module("kakeya_http_shim", run_name="__main__")
    assert raised.value.code == 0
    shown = capsys.readouterr().out
    assert "usage: kakeya http" in shown
    assert "--served-model-name" in shown


def test_what_is_said_at_the_start() -> None:
    flags = ["--bind", "0.0.0.0:8000", "--insecure", "--deprecated-since", "2026-11-01"]
    settings = HttpSettings.parse(flags)
    with capture_logs() as said:
        announce(settings, HostPort("0.0.0.0", 8000), Deprecation.from_settings(settings))
    levels = [line["log_level"] for line in said]
    assert levels == ["warning", "warning", "warning", "info"]
    assert said[0]["event"].startswith("INSECURE: every host that reaches this port")
    assert "2026-11-01" in said[2]["event"]
    assert said[3]["address"] == "0.0.0.0:8000"


async def test_a_route_that_fails(
    runtime: ScriptedRuntime, tokenizer_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_shim(runtime, tokenizer_dir) as shim:
        monkeypatch.setattr("kakeya_http_shim.routes.listing_routes.Health", "not a model")
        response = await shim.http.get("/healthz")
    assert (response.status_code, response.json()["error"]["code"]) == (500, "internal_error")
