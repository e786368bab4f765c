"""The HTTP shim of a stack: how it is started, what it is told, and when it counts as ready."""

import json
import os
import shlex
import socket
import ssl
from pathlib import Path

import pytest

from kakeya_local.errors import StackError
from kakeya_local.settings import UpSettings
from kakeya_local.stack.planning.http_entrance import HttpEntrance, http_entrance
from kakeya_local.stack.planning.http_plan import HttpPlan
from kakeya_local.stack.planning.ports import Ports
from kakeya_local.stack.program import Stage
from kakeya_local.up.up import curl_line
from kakeya_shared.settings.addresses import HostPort
from tests.certificates import Authority
from tests.gguf_bytes import gguf
from tests.unit.local.scripted_http import scripted_http

ROUTER = HostPort("127.0.0.1", 5)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the person who runs the tests."""
    for name in [name for name in os.environ if name.startswith("KAKEYA_")]:
        monkeypatch.delenv(name)


def plan(model: str = "owner/Model-1", wanted: str = "127.0.0.1:0", **environment: str) -> HttpPlan:
    with Ports() as ports:
        return HttpPlan.make(wanted, ROUTER, model, environment, ports)


def test_it_is_told_the_router_and_the_tokenizer_of_the_model_by_its_served_name() -> None:
    made = plan()
    program = made.program(ROUTER)
    told = ["http", "--router=127.0.0.1:5", f"--bind={made.bind}", "--tokenizer=Model-1=owner/Model-1"]
    assert list(program.command[-4:]) == told
    assert (program.name, program.stage) == ("http", Stage.HTTP)
    assert plan(wanted="0.0.0.0:0").program(ROUTER).command[-1] == "--insecure"
    assert made.bind.port
    assert made.entrance.url == f"http://{made.bind}"


def test_a_name_that_the_workers_were_given_is_the_models() -> None:
    made = plan(KAKEYA_WORKER_SERVED_MODEL_NAME="mine")
    assert (made.model, made.tokenizer) == ("mine", "mine=owner/Model-1")


def test_a_gguf_file_is_named_without_its_end(tmp_path: Path) -> None:
    (tmp_path / "SmolLM2.Q4_1.gguf").write_bytes(gguf())
    path = str(tmp_path / "SmolLM2.Q4_1.gguf")
    assert plan(path).tokenizer == f"SmolLM2.Q4_1={path}"
    assert plan("ollama:smollm2:135m").tokenizer == "smollm2:135m=ollama:smollm2:135m"


def test_a_directory_must_hold_a_tokenizer_unless_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        StackError,
        match=rf"^the model directory {tmp_path} holds no tokenizer, which HTTP needs; name one by "
        rf"KAKEYA_HTTP_TOKENIZER={tmp_path.name}=DIR, or do without HTTP \(--http-bind none\)$",
    ):
        plan(str(tmp_path))
    named = plan(str(tmp_path), KAKEYA_HTTP_TOKENIZER=f"{tmp_path.name}=/elsewhere")
    assert not [word for word in named.program(ROUTER).command if word.startswith("--tokenizer")], (
        "its own variable tells it"
    )
    (tmp_path / "tokenizer.json").touch()
    assert plan(str(tmp_path)).tokenizer == f"{tmp_path.name}={tmp_path}"


@pytest.mark.parametrize("name", ["a,b", "a=b"])
def test_a_name_that_the_flag_would_not_hold(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "tokenizer.json").touch()
    with pytest.raises(StackError, match=r"^HTTP cannot serve .*: a comma or `=` in its name or path"):
        plan(str(tmp_path / name))


def test_a_taken_port_names_its_flag() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(
            StackError,
            match=rf"^cannot listen on {address}: address already in use; choose another --http-bind, or `none`",
        ):
            plan(wanted=address)


def test_router_and_shim_cannot_share_a_port() -> None:
    free = plan().bind
    with Ports() as ports, pytest.raises(StackError, match=f"^--bind and --http-bind are both {free}$"):
        HttpPlan.make(str(free), free, "owner/Model-1", {}, ports)


def test_it_listens_where_openai_clients_look_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert UpSettings.parse([]).http_bind == "127.0.0.1:8000"
    assert UpSettings.parse(["--http-bind", "none"]).http_bind is None
    monkeypatch.setenv("KAKEYA_UP_HTTP_BIND", "None")
    assert UpSettings.parse([]).http_bind is None
    assert UpSettings.parse(["--http-bind", "127.0.0.1:0"]).http_bind == "127.0.0.1:0"
    with pytest.raises(SystemExit):
        UpSettings.parse(["--http-bind", "0.0.0.0:8000"])
    assert "--http-bind 0.0.0.0 is outside loopback and keys are not asked for (--auth keys)" in capsys.readouterr().err
    for allowed in (["--insecure"], ["--auth", "keys"]):
        assert UpSettings.parse(["--http-bind", "0.0.0.0:8000", *allowed]).http_bind == "0.0.0.0:8000"


def test_ready_is_what_says_so_and_what_does_not_says_why() -> None:
    with scripted_http() as server:
        entrance = HttpEntrance(server.address)
        server.answers = [
            (503, b'{"error": {"message": "no worker\\n serves", "type": "server_error"}}'),
            (503, b'{"error": "later"}'),
            (404, b"<html>"),
            (200, b"{}"),
        ]
        said = [entrance.unready() for _ in range(4)]
        assert said == ["no worker serves", "it answers 503", "it answers 404", ""]
        assert {request for request, _ in server.requests} == {"GET /readyz"}
    assert entrance.unready() == "it does not answer"


def test_a_shim_with_tls_is_reached_with_tls(tmp_path: Path) -> None:
    pair = Authority(tmp_path).pair("shim")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    environment = {"KAKEYA_HTTP_TLS_CERT": str(pair.cert)}
    with scripted_http(context) as server:
        entrance = http_entrance(server.address, environment)
        assert entrance.url == f"https://{server.address}"
        assert entrance.unready() == ""
    shown = {"KAKEYA_TLS_CERT": str(pair.cert), "KAKEYA_TLS_KEY": str(pair.key)}
    assert http_entrance(ROUTER, environment | shown).tls
    with pytest.raises(StackError, match=r"^KAKEYA_TLS_CERT: /nowhere: No such file or directory$"):
        http_entrance(ROUTER, environment | {"KAKEYA_TLS_CERT": "/nowhere"})


def test_the_line_to_try_holds_in_a_shell() -> None:
    line = curl_line("http://127.0.0.1:8000", "it's", with_key=False)
    words = shlex.split(line)
    assert words[:2] == ["curl", "http://127.0.0.1:8000/v1/chat/completions"]
    assert words[2:4] == ["-H", "Content-Type: application/json"]
    assert json.loads(words[words.index("-d") + 1]) == {
        "model": "it's",
        "messages": [{"role": "user", "content": "Hello!"}],
        "max_tokens": 64,
    }
    assert "Authorization" not in line
    with_key = curl_line("https://[::1]:8000", "m", with_key=True, ca="/my ca.pem")
    assert '-H "Authorization: Bearer $KAKEYA_API_KEY"' in with_key, "in quotes that let the shell fill it in"
    assert "--cacert '/my ca.pem'" in with_key
    assert "noproxy" not in line + with_key


@pytest.mark.parametrize("variable", ["http_proxy", "HTTPS_PROXY", "ALL_PROXY"])
def test_the_line_to_try_goes_past_a_proxy(variable: str) -> None:
    line = curl_line("http://127.0.0.1:8000", "m", with_key=False, environment={variable: "http://proxy:3128"})
    words = shlex.split(line)
    assert words[words.index("--noproxy") + 1] == "*"


def test_a_chat_template_takes_the_place_of_the_models(tmp_path: Path) -> None:
    (tmp_path / "own.jinja").write_text("{{ messages }}")
    with Ports() as ports:
        made = HttpPlan.make(
            "127.0.0.1:0", ROUTER, "owner/Model-1", {}, ports, template_file=Path(tmp_path, "x", "..", "own.jinja")
        )
    assert f"--chat-template=Model-1={tmp_path}/own.jinja" in made.program(ROUTER).command
    assert not any("--chat-template" in word for word in plan().program(ROUTER).command)


def test_a_bad_chat_template_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    (tmp_path / "bad.jinja").write_text("one {% two")
    with Ports() as ports, pytest.raises(StackError, match=r"bad\.jinja is not Jinja: line 1: "):
        HttpPlan.make("127.0.0.1:0", ROUTER, "owner/Model-1", {}, ports, template_file=tmp_path / "bad.jinja")


def test_a_chat_template_without_http_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        UpSettings.parse(["--chat-template", "own.jinja", "--http-bind", "none"])
    assert ended.value.code == 2
    assert "--chat-template is the HTTP shim's, which --http-bind none leaves out" in capsys.readouterr().err
