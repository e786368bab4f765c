"""`kakeya doctor` against real and missing things."""

import json
import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from kakeya_local import doctor_command
from kakeya_local.doctor import installation
from kakeya_local.doctor.redis_ping import ping
from kakeya_local.stack.planning.redis_binary import find_redis
from kakeya_shared import installed_models
from kakeya_stubs.admin.v1 import admin_pb2
from tests.certificates import Authority
from tests.ports import free_port
from tests.small_disk import small_disk_or_skip
from tests.unit.local.registry import Registry, serving_registry

PASSWORD = "secret/word"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the person who runs the tests."""
    for name in [name for name in os.environ if name.startswith("KAKEYA_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def registry() -> Iterator[tuple[str, Registry]]:
    with serving_registry() as served:
        yield served


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
    directory = str(tmp_path_factory.mktemp("redis"))
    flags = ["--port", str(port), "--requirepass", PASSWORD, "--dir", directory, "--save", ""]
    with running_redis(port, *flags):
        yield port


@contextmanager
def running_redis(port: int, *flags: str) -> Iterator[None]:
    with subprocess.Popen([find_redis(), *flags], stdout=subprocess.DEVNULL) as server:
        while not listens(port):
            time.sleep(0.02)
        yield
        server.terminate()


def diagnose(*flags: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, str]]]:
    """The exit status and the findings by subject."""
    status = doctor_command.main([*flags, "--json"])
    return status, {finding["subject"]: finding for finding in json.loads(capsys.readouterr().out)}


def test_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    status, found = diagnose(capsys=capsys)
    assert status == 0, "nothing was asked for"
    parts = ("kakeya", "kakeya-stubs", "kakeya-shared", "kakeya-local")
    for subject in ("python", "machine", *parts, "model kakeya-nano", "redis-server"):
        assert found[subject]["condition"] == "ok", subject
    assert "kakeya-http-shim" in found, "installed or not"


def test_what_is_missing_names_its_cure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(installation._PARTS, "kakeya-nonesuch", "nothing")
    monkeypatch.setattr(
        "kakeya_shared.plugins.names", lambda seam: [] if seam == installed_models.GROUP else ["nonesuch"]
    )
    monkeypatch.setattr("kakeya_local.stack.planning.redis_binary.bundled_redis", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    status, found = diagnose(capsys=capsys)
    assert status == 0
    assert found["kakeya-nonesuch"]["condition"] == "absent"
    assert found["kakeya-nonesuch"]["cure"] == "pip install kakeya-nonesuch"
    assert found["kakeya.verifier nonesuch"]["cure"] == "pip install 'kakeya-worker[nonesuch]'"
    assert found["redis-server"]["detail"] == "no redis-server on PATH and no bundled one"
    assert found["redis-server"]["cure"].startswith("install one (apt install redis-server")


@pytest.fixture
def nano(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the installed model, which takes its place."""
    copy = tmp_path / "kakeya-nano"
    shutil.copytree(installed_models.directory("kakeya-nano"), copy)
    monkeypatch.setattr(installed_models, "directory", lambda name: copy)
    return copy


def test_a_whole_model(nano: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = diagnose(capsys=capsys)
    assert (status, found["model kakeya-nano"]["detail"]) == (0, f"whole, at {nano}")


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("tokenizer.json", None, "tokenizer.json cannot be read: "),
        ("tokenizer.json", b'{"model": {"type": "Newer"}}', "no tokenizer can be loaded from "),
        ("tokenizer_config.json", b"[]", "no tokenizer can be loaded from "),
        ("config.json", b"{", "config.json cannot be read: "),
        ("config.json", b"[" * 100_000, "config.json cannot be read: "),
        (
            "model.safetensors",
            b"\x1c" + bytes(7) + b'{"a": {"data_offsets": [0]}}',
            "model.safetensors cannot be read: ",
        ),
        ("model.safetensors", None, "model.safetensors cannot be read: "),
        ("model.safetensors", b"\x02", "model.safetensors cannot be read: "),
        ("model.safetensors", b"\x02" + bytes(7) + b"[]", "model.safetensors cannot be read: "),
        ("model.safetensors", b"\x02" + bytes(7) + b"{}" + b"x", "model.safetensors has 11 bytes and should have 10"),
    ],
)
def test_a_damaged_model_is_wrong(
    nano: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes | None, problem: str
) -> None:
    (nano / name).unlink()
    if content is not None:
        (nano / name).write_bytes(content)
    status, found = diagnose(capsys=capsys)
    finding = found["model kakeya-nano"]
    assert (status, finding["condition"]) == (1, "wrong")
    assert finding["detail"].startswith(problem)
    assert finding["cure"] == "pip install --force-reinstall --no-deps kakeya-nano"


def test_a_model_cut_short_is_wrong(nano: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = nano / "model.safetensors"
    size = weights.stat().st_size
    weights.write_bytes(weights.read_bytes()[:-1])
    assert diagnose(capsys=capsys)[1]["model kakeya-nano"]["detail"].startswith(
        f"model.safetensors has {size - 1:,} bytes and should have {size:,}"
    )


def test_a_model_of_several_files_of_weights(nano: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (nano / "model.safetensors").rename(nano / "one.safetensors")
    shutil.copy(nano / "one.safetensors", nano / "two.safetensors")
    index = nano / "model.safetensors.index.json"
    index.write_text(
        json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors", "c": "one.safetensors"}})
    )
    assert diagnose(capsys=capsys)[1]["model kakeya-nano"]["detail"] == f"whole, at {nano}"
    (nano / "two.safetensors").write_bytes((nano / "one.safetensors").read_bytes()[:-1])
    assert diagnose(capsys=capsys)[1]["model kakeya-nano"]["detail"].startswith("two.safetensors has ")
    (nano / "two.safetensors").unlink()
    assert diagnose(capsys=capsys)[1]["model kakeya-nano"]["detail"].startswith("two.safetensors cannot be read: ")
    for content, problem in (("{", "cannot be read: "), ("{}", "does not say "), ("[]", "does not say ")):
        index.write_text(content)
        detail = diagnose(capsys=capsys)[1]["model kakeya-nano"]["detail"]
        assert detail.startswith(f"model.safetensors.index.json {problem}")


def test_another_model_may_have_another_tokenizer(
    nano: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed_models, "names", lambda: ["theirs"])
    monkeypatch.setattr(installed_models, "distribution", lambda name: f"a-package-of-{name}")
    for file in nano.glob("tokenizer*"):
        file.unlink()
    assert diagnose(capsys=capsys)[1]["model theirs"]["condition"] == "ok"
    (nano / "config.json").unlink()
    finding = diagnose(capsys=capsys)[1]["model theirs"]
    assert finding["cure"] == "pip install --force-reinstall --no-deps a-package-of-theirs"


def test_a_model_whose_package_is_broken(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("theirs", "pathlib:no_directory", installed_models.GROUP)
    monkeypatch.setattr(
        "kakeya_shared.plugins.entry_points", lambda group, **_: [point] if group == installed_models.GROUP else []
    )
    status, found = diagnose(capsys=capsys)
    finding = found["model theirs"]
    assert (status, finding["condition"]) == (1, "wrong")
    assert finding["detail"].startswith("the installed model 'theirs' is broken: AttributeError: ")
    assert finding["cure"] == "pip install --force-reinstall theirs"


def test_a_model_that_is_not_installed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kakeya_shared.plugins.entry_points", lambda **_: [])
    status, found = diagnose(capsys=capsys)
    finding = found["model kakeya-nano"]
    assert (status, finding["condition"], finding["cure"]) == (0, "absent", "pip install kakeya-nano")


def test_a_router_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    status, found = diagnose("--address", "127.0.0.1:1", capsys=capsys)
    assert status == 1
    assert found["router"]["condition"] == "wrong"
    assert "Connection refused" in found["router"]["detail"]
    assert found["router"]["cure"] == "nothing listens there; `kakeya up` starts one on this machine"


def test_a_router_that_does_not_serve(capsys: pytest.CaptureFixture[str]) -> None:
    server, status = grpc.server(futures.ThreadPoolExecutor(2)), health.HealthServicer()
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    found = diagnose("--address", address, capsys=capsys)[1]
    assert found["router"]["detail"] == f"{address} answers UNIMPLEMENTED (Method not found!)"
    server.stop(None).wait()
    server = grpc.server(futures.ThreadPoolExecutor(2))
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    status.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    exit_status, found = diagnose("--address", address, capsys=capsys)
    assert (exit_status, found["router"]["detail"]) == (
        1,
        f"the router at {address} is NOT_SERVING (its log says why)",
    )
    assert "Redis" in found["router"]["cure"]
    server.stop(None).wait()


def test_a_router_that_does_not_serve_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    with serving_registry(health_pb2.HealthCheckResponse.NOT_SERVING) as (address, registry):
        registry.key, registry.refuses_with = "k", grpc.StatusCode.UNAVAILABLE
        registry.refusal = "Redis does not answer: the disk of /d is full"
        _, found = diagnose("--address", address, capsys=capsys)
    assert found["router"]["detail"] == f"the router at {address} is NOT_SERVING: {registry.refusal}"


def test_a_full_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with small_disk_or_skip(tmp_path / "disk", mebibytes=1) as disk:
        monkeypatch.setenv("KAKEYA_UP_DATA_DIR", str(disk.path / "made" / "later"))
        assert diagnose(capsys=capsys)[1]["disk"]["condition"] == "ok"
        disk.fill()
        status, found = diagnose(capsys=capsys)
    assert (status, found["disk"]["condition"]) == (1, "wrong")
    assert "is full: 0.0 MiB are free, 0.1 MiB more are needed" in found["disk"]["detail"]


def test_something_that_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        exit_status, found = diagnose("--address", address, capsys=capsys)
    assert (exit_status, found["router"]["detail"]) == (1, f"no runtime answers at {address} (Deadline Exceeded)")
    assert found["router"]["cure"] == "check the address; one that serves TLS needs --tls-ca"


def test_a_bad_key(
    registry: tuple[str, Registry], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, servicer = registry
    servicer.key = "secret"
    monkeypatch.setenv("KAKEYA_API_KEY", "another")
    exit_status, found = diagnose("--address", address, capsys=capsys)
    assert (exit_status, found["workers"]["condition"]) == (1, "wrong")
    assert found["workers"]["detail"] == "the router refuses the key: not for you"
    assert "KAKEYA_API_KEY" in found["workers"]["cure"]


def test_a_router_with_workers(registry: tuple[str, Registry], capsys: pytest.CaptureFixture[str]) -> None:
    address, servicer = registry
    status, found = diagnose("--address", address, capsys=capsys)
    assert status == 1
    assert found["router"]["condition"] == "ok"
    assert found["workers"]["detail"] == "none has joined the router"
    servicer.workers = [
        admin_pb2.WorkerStatus(worker_id="b", model="m", num_lanes=4, num_sessions=1),
        admin_pb2.WorkerStatus(worker_id="a", model="m", last_heartbeat_age_seconds=60.0),
    ]
    status, found = diagnose("--address", address, capsys=capsys)
    assert status == 1
    assert found["worker b"]["condition"] == "ok"
    assert "1 of 4 lanes in use" in found["worker b"]["detail"]
    assert found["worker a"]["condition"] == "wrong"
    assert "silent for 60 s" in found["worker a"]["detail"]
    servicer.workers.pop()
    assert diagnose("--address", address, capsys=capsys)[0] == 0


@pytest.mark.parametrize("status", [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED])
def test_a_router_that_asks_for_keys(
    registry: tuple[str, Registry],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    status: grpc.StatusCode,
) -> None:
    address, servicer = registry
    servicer.workers = [admin_pb2.WorkerStatus(worker_id="b", model="m", num_lanes=4, num_sessions=1)]
    servicer.key, servicer.refuses_with = "secret", status
    exit_status, found = diagnose("--address", address, capsys=capsys)
    assert exit_status == 0, "the router serves; this caller may not look further"
    assert found["workers"]["condition"] == "absent"
    assert "KAKEYA_API_KEY" in found["workers"]["cure"]
    monkeypatch.setenv("KAKEYA_API_KEY", "secret")
    assert diagnose("--address", address, capsys=capsys)[1]["worker b"]["condition"] == "ok"
    monkeypatch.setenv("KAKEYA_API_KEY", "two words")
    assert doctor_command.main(["--address", address]) == 2
    assert capsys.readouterr().err.startswith("kakeya doctor: error: $KAKEYA_API_KEY: has blanks")


def test_a_router_that_cannot_list_its_workers(
    registry: tuple[str, Registry], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, servicer = registry
    servicer.key, servicer.refuses_with = "secret", grpc.StatusCode.INTERNAL
    monkeypatch.setenv("KAKEYA_ADDRESS", address)  # which names it as a flag does
    status, found = diagnose(capsys=capsys)
    assert (status, found["workers"]["condition"]) == (1, "wrong")
    assert found["workers"]["detail"] == "the router does not list them: not for you"


def test_a_router_with_tls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority = Authority(tmp_path)
    pair = authority.pair("router")
    server = grpc.server(futures.ThreadPoolExecutor(2))
    status = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    status.set("", health_pb2.HealthCheckResponse.SERVING)
    credentials = grpc.ssl_server_credentials([(pair.key.read_bytes(), pair.cert.read_bytes())])
    address = f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', credentials)}"
    server.start()
    router = diagnose("--address", address, capsys=capsys)[1]["router"]
    assert (router["condition"], router["cure"]) == ("wrong", "check the address; one that serves TLS needs --tls-ca")
    found = diagnose("--address", address, "--tls-ca", str(authority.path), capsys=capsys)[1]
    assert found["router"]["condition"] == "ok"
    server.stop(None).wait()


def told(port: int, *commands: tuple[str, ...]) -> None:
    """In a line each, as Redis takes them from people."""
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as answers:
        for words in (("AUTH", PASSWORD), *commands):
            connection.sendall(" ".join(words).encode() + b"\r\n")
            assert answers.readline() == b"+OK\r\n"


def test_a_redis(redis_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = diagnose("--redis", f"redis://:secret%2Fword@127.0.0.1:{redis_port}/0", capsys=capsys)
    assert (status, found["redis"]["condition"]) == (0, "ok")
    for commands, problem in (
        ([("CONFIG", "SET", "maxmemory", "100mb")], ""),
        ([("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")], "maxmemory-policy allkeys-lru"),
        ([("ACL", "SETUSER", "default", "-info")], ""),
    ):
        told(redis_port, *commands)
        status, found = diagnose("--redis", f"redis://:secret%2Fword@127.0.0.1:{redis_port}/0", capsys=capsys)
        assert (status, problem in found["redis"]["detail"]) == (int(bool(problem)), True)
    status, found = diagnose("--redis", f"redis://127.0.0.1:{redis_port}", capsys=capsys)
    assert status == 1
    assert "NOAUTH" in found["redis"]["detail"]
    status, found = diagnose("--redis", f"redis://default:wrong@127.0.0.1:{redis_port}", capsys=capsys)
    assert "WRONGPASS" in found["redis"]["detail"]
    status, found = diagnose("--redis", "redis://127.0.0.1:1", capsys=capsys)
    assert found["redis"]["detail"] == "Connection refused"
    status, found = diagnose("--redis", "http://127.0.0.1:1", capsys=capsys)
    assert found["redis"]["detail"].startswith("not the URL of a Redis; supported: redis://")
    status, found = diagnose("--redis", f"redis://:secret%2Fword@127.0.0.1:{redis_port}/99", capsys=capsys)
    assert "DB index is out of range" in found["redis"]["detail"]


@pytest.mark.parametrize("url", ["redis://:hush@h1:1,h2:2/0", "redis+sentinel://:hush@h", "redis://:hu/sh@h:1"])
def test_a_url_that_no_client_understands(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = diagnose("--redis", url, capsys=capsys)
    assert (status, found["redis"]["condition"]) == (1, "wrong")
    assert "supported: redis://" in found["redis"]["detail"]
    assert "hu" not in json.dumps(found["redis"])


def test_a_redis_behind_sentinel(redis_port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    (tmp_path / "sentinel.conf").write_text(
        f"port {port}\nbind 127.0.0.1\nrequirepass of-sentinel\nsentinel monitor one 127.0.0.1 {redis_port} 1\n"
    )
    with running_redis(port, str(tmp_path / "sentinel.conf"), "--sentinel"):
        places = f"redis+sentinel://:secret%2Fword@127.0.0.1:1,127.0.0.1:{port}"
        for name, user, problem in (
            ("one", "", ""),
            ("one", "sentinel_username=default&", ""),
            ("two", "", "Sentinel knows no primary of this name"),
        ):
            url = f"{places}/{name}?{user}sentinel_password=of-sentinel"
            status, found = diagnose("--redis", url, capsys=capsys)
            assert (status, problem in found["redis"]["detail"]) == (int(bool(problem)), True)
        status, found = diagnose("--redis", f"{places}/one", capsys=capsys)
        assert "NOAUTH" in found["redis"]["detail"]


def test_a_cluster_is_asked_at_the_first_node_that_answers(redis_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = f"127.0.0.1:1,127.0.0.1:{redis_port}"
    status, found = diagnose("--redis", f"redis+cluster://:secret%2Fword@{nodes}", capsys=capsys)
    assert (status, found["redis"]["condition"]) == (0, "ok")
    status, found = diagnose("--redis", "redis+cluster://127.0.0.1:1", capsys=capsys)
    assert found["redis"]["detail"] == "Connection refused"


def test_a_redis_at_a_unix_socket_or_with_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.pair("redis")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.cert, pair.key)

    def serve(listener: socket.socket) -> None:
        connection = listener.accept()[0]
        with context.wrap_socket(connection, server_side=True) if listener is tcp else connection as client:
            assert client.recv(100) == b"*1\r\n$4\r\nPING\r\n"
            client.sendall(b"+PONG\r\n")
            client.recv(1 << 10)
            client.sendall(b"-NOPERM\r\n")

    tcp, local = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
    with tcp, local, futures.ThreadPoolExecutor(2) as pool:
        local.bind(str(tmp_path / "s"))
        local.listen()
        serving = [pool.submit(serve, tcp), pool.submit(serve, local)]
        ping(f"rediss://127.0.0.1:{tcp.getsockname()[1]}?ssl_ca_certs={authority.path}")
        ping(f"unix://{tmp_path / 's'}")
        for each in serving:
            each.result()


def test_a_server_that_hangs_up_in_the_middle() -> None:
    def serve(listener: socket.socket) -> None:
        with listener.accept()[0] as client:
            client.recv(1 << 10)
            client.sendall(b"+PONG\r\n")
            client.recv(1 << 10)
            client.sendall(b"$100\r\nmaxmemory:0\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener, futures.ThreadPoolExecutor(1) as pool:
        serving = pool.submit(serve, listener)
        with pytest.raises(OSError, match="closed the connection"):
            ping(f"redis://127.0.0.1:{listener.getsockname()[1]}")
        serving.result()


def test_a_server_that_hangs_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, futures.ThreadPoolExecutor(1) as pool:
        hanging_up = pool.submit(lambda: listener.accept()[0].close())
        with pytest.raises(OSError, match=r"closed the connection|reset"):
            ping(f"redis://127.0.0.1:{listener.getsockname()[1]}")
        hanging_up.result()


def test_people_read_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor_command.main(["--address", "127.0.0.1:1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    (router,) = [line for line in lines if line.startswith("reachable  router")]
    assert router.split()[2:8] == ["wrong", "no", "runtime", "answers", "at", "127.0.0.1:1"]
    assert lines[-1].strip().startswith("-> nothing listens there; `kakeya up`")
