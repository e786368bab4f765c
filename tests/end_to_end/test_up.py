"""`kakeya up` as a real process: it serves, survives, refuses clearly and leaves nothing behind."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import psutil
import pytest

from kakeya import AsyncClient, AsyncSession, KakeyaError, StoreUnavailable
from kakeya_local.stack.readiness import joined_workers
from kakeya_shared import installed_models
from tests.default_mode import kv_item_bytes
from tests.end_to_end.up_process import UpProcess
from tests.scrape import scrape
from tests.small_disk import small_disk_or_skip

pytestmark = pytest.mark.timeout(600)  # a whole stack each, beside whatever else the machine does
EPHEMERAL = ("--ephemeral", "--bind", "127.0.0.1:0", "--window", "64", "--lanes", "2", "--threads", "1")
# Of kakeya-nano, the default model: layers, kv heads, head_dim, type, K and V.
BYTES_PER_TOKEN = 6 * 2 * 32 * kv_item_bytes("bfloat16") * 2


async def converse(address: str) -> None:
    async with AsyncClient(address) as client, await client.create_session() as session:
        for turn in range(1, 4):
            async with session.turn(list(range(30)), max_tokens=10) as generation:
                tokens = [token async for token in generation]
            assert len(tokens) == 10
            info = await session.info()
            assert info.history_length == 40 * turn
            assert info.kv_live_bytes == min(40 * turn, 68) * BYTES_PER_TOKEN


def check_http(up: UpProcess, **environment: str) -> None:
    """The printed line works as it stands in a shell, and where it leads is what the table and `ready` say."""
    (line,) = [line for line in up.output.splitlines() if line.startswith("curl ")]
    assert up.http == up.row("http")[1]
    assert f"http://{up.http}/v1/chat/completions" in line
    done = subprocess.run(["sh", "-c", line], env=os.environ | environment, capture_output=True, text=True, timeout=60)
    answer = json.loads(done.stdout)
    assert answer["model"] == "kakeya-nano"
    assert answer["choices"][0]["message"]["content"], answer


async def check_metrics(up: UpProcess) -> None:
    """Each process shows its own where the table says so: three turns of 30 tokens and 10, and those of one chat."""
    router, *workers = [await asyncio.to_thread(scrape, up.row(name)[4]) for name in ("router", "worker-1", "worker-2")]
    assert router.value("kakeya_router_workers", state="ready") == 2
    generated = router.value("kakeya_router_generated_tokens_total")
    assert generated > 30
    assert sum(worker.value("kakeya_worker_generated_tokens_total") for worker in workers) == generated
    http = await asyncio.to_thread(scrape, up.row("http")[4])
    assert http.value("kakeya_http_completion_tokens_total") == generated - 30


async def eventually(attempt: Callable[[], Awaitable[None]], seconds: float = 90.0) -> None:
    """Repeats an attempt until it passes, or fails that began after `seconds`."""
    deadline, is_late = time.monotonic() + seconds, False
    while True:
        try:
            return await attempt()
        except (KakeyaError, AssertionError):
            if is_late:
                raise
            time.sleep(0.3)  # noqa: ASYNC251  # nothing else runs here
            is_late = time.monotonic() > deadline


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, *(pytest.param(number, marks=pytest.mark.heavy) for number in (signal.SIGINT, signal.SIGHUP))],
    ids=lambda number: number.name,
)
async def test_serves_and_leaves_nothing(number: signal.Signals) -> None:
    with UpProcess(*EPHEMERAL, "--workers", "2", "--http-bind", "127.0.0.1:0") as up:
        address = up.wait_ready()
        rows = [line.split() for line in up.output.splitlines()]
        processes = ["redis", "router", "worker-1", "worker-2", "http"]
        assert [row[0] for row in rows] == ["process", *processes, "curl", "ready"]
        await converse(address)
        check_http(up)
        await check_metrics(up)
        data = up.log("redis").parent.parent
        assert data.is_dir()
        status, errors = up.wait_end(number)
        assert status == 0, errors
        assert errors.splitlines()[-1] == "kakeya up: stopped"
        assert up.processes() == []
        assert up.left_files() == []
        for row in rows[1:6]:
            host, _, port = row[1].rpartition(":")
            with socket.socket() as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((host, int(port)))


@pytest.mark.heavy
async def test_workers_of_two_backends_serve_one_model() -> None:
    with UpProcess(*EPHEMERAL, "--worker", "torch", "--worker", "mlx") as up:
        address = up.wait_ready()
        async with grpc.aio.insecure_channel(address) as channel:
            workers = await joined_workers(channel)
        assert [(worker.worker_id, worker.backend) for worker in workers] == [
            ("worker-1", "torch"),
            ("worker-2", "mlx"),
        ]
        of_torch, of_mlx = workers
        assert (of_torch.pool, of_torch.model_digest) == (of_mlx.pool, of_mlx.model_digest)
        async with AsyncClient(address) as client:
            session = await client.create_session(fingerprint=of_torch.fingerprint, inexact_resume=True)
            await session.append(range(100))
            drain = ["workers", "drain", "worker-1", "--wait", "--timeout", "30s", "--address", address]
            subprocess.run([sys.executable, "-m", "kakeya", *drain], check=True, capture_output=True, timeout=60)  # noqa: ASYNC221  # nothing else runs here
            assert len([token_id async for token_id in session.generate(max_tokens=10)]) == 10
            info = await session.info()
            assert (info.worker, info.history_length, info.exact) == ("worker-2", 110, False)
            assert info.kv_live_bytes == 68 * of_mlx.kv_bytes_per_token


@pytest.mark.heavy
def test_a_backend_that_is_not_whole_says_how_to_install_it(tmp_path: Path) -> None:
    (tmp_path / "mlx").mkdir()
    (tmp_path / "mlx" / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'mlx'\", name='mlx')\n")
    paths = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    with UpProcess(*EPHEMERAL, "--worker", "torch", "--worker", "mlx", environment={"PYTHONPATH": paths}) as up:
        status, errors = up.wait_end()
        assert status == 1
        assert "worker-2: the kakeya.verifier plugin 'mlx' needs the module 'mlx'" in errors
        assert "pip install 'kakeya-worker[mlx]'" in errors
        assert up.processes() == []


@pytest.mark.heavy
async def test_stops_http_then_workers_then_router_then_redis(tmp_path: Path) -> None:
    with UpProcess(*EPHEMERAL[1:], "--data-dir", str(tmp_path), "--http-bind", "127.0.0.1:0") as up:
        up.wait_ready()
        assert up.wait_end(signal.SIGTERM)[0] == 0
        lines = (tmp_path / "logs" / "supervisor.log").read_text().splitlines()
        stopped = [line.split("stopped: ")[1].split()[0] for line in lines if "stopped: " in line]
        assert stopped == ["http", "worker-1", "router", "redis"]
        assert not [line for line in lines if "killing" in line], "something had to be killed"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
def test_killed_hard_it_leaves_no_process(tmp_path: Path) -> None:
    with UpProcess(*EPHEMERAL[1:], "--data-dir", str(tmp_path)) as up:
        up.wait_ready()
        up.wait_end(signal.SIGKILL)
        up.wait_no_process()


@pytest.mark.heavy
async def test_a_worker_of_a_former_run_does_not_count_as_ready(tmp_path: Path) -> None:
    flags = (*EPHEMERAL[1:], "--data-dir", str(tmp_path))
    with UpProcess(*flags) as up:
        up.wait_ready()
        for process in up.processes():  # all at once, so that Redis keeps the record of a worker that never left
            process.kill()
        up.wait_no_process()
    with UpProcess(*flags) as again:
        address = again.wait_ready()
        async with grpc.aio.insecure_channel(address) as channel:
            (worker,) = await joined_workers(channel)
        assert worker.address == again.row("worker-1")[1]
        host, _, port = worker.address.rpartition(":")
        socket.create_connection((host, int(port))).close()
        await converse(address)


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
def test_a_killed_supervisor_takes_everything_along() -> None:
    with UpProcess(*EPHEMERAL) as up:
        up.wait_ready()
        up.process("redis").parent().kill()
        status, errors = up.wait_end()
        assert status == 1
        assert errors.splitlines()[-1] == "kakeya up: error: the supervisor ended unexpectedly: status -9"
        up.wait_no_process()


async def test_a_killed_worker_comes_back() -> None:
    with UpProcess(*EPHEMERAL) as up:
        address = up.wait_ready()
        async with grpc.aio.insecure_channel(address) as channel:
            (before,) = await joined_workers(channel)
            up.process("worker-1").kill()

            async def new_incarnation() -> None:
                workers = await joined_workers(channel)
                assert [worker.worker_id for worker in workers] == ["worker-1"]
                assert workers[0].incarnation != before.incarnation

            await eventually(new_incarnation)
        await eventually(lambda: converse(address))
        _, errors = up.wait_end(signal.SIGTERM)
        assert "kakeya up: worker-1 ended and was started again (pid " in errors


async def test_a_killed_redis_comes_back_with_its_sessions(tmp_path: Path) -> None:
    with UpProcess(*EPHEMERAL[1:], "--data-dir", str(tmp_path)) as up:
        address = up.wait_ready()
        async with AsyncClient(address) as client, await client.create_session() as session:
            await session.append(list(range(50)))
            up.process("redis").kill()

            async def same_history() -> None:
                info = await session.info(timeout_seconds=5.0)
                assert (info.history_length, info.kv_live_bytes) == (50, 50 * BYTES_PER_TOKEN)

            await eventually(same_history)
            assert (await session.append([1, 2])).history_length == 52


async def _turn(session: AsyncSession, first: int) -> list[int]:
    generation = session.turn(range(first, first + 20), max_tokens=20, temperature=1.0, seed=first)
    return [token async for token in generation]


async def _refusal(up: UpProcess, session: AsyncSession) -> str:
    """What gRPC and HTTP say as long as the disk is full."""
    with pytest.raises(StoreUnavailable) as raised:
        await session.append([1], timeout_seconds=60.0)
    body = json.dumps({"model": "kakeya-nano", "messages": [{"role": "user", "content": "Hello!"}]}).encode()
    request = urllib.request.Request(
        f"http://{up.http}/v1/chat/completions", body, {"Content-Type": "application/json"}
    )
    with pytest.raises(urllib.error.HTTPError) as answer:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60)
    assert answer.value.code == 503
    assert "is full" in answer.value.read().decode()
    return raised.value.message


@pytest.mark.heavy
async def test_a_full_disk_is_waited_out_and_every_session_goes_on(tmp_path: Path) -> None:
    flags = (*EPHEMERAL[1:5], "--lanes", "8", "--threads", "1", "--http-bind", "127.0.0.1:0")
    with (
        small_disk_or_skip(tmp_path / "disk", mebibytes=32) as disk,
        UpProcess(*flags, "--data-dir", str(disk.path / "data"), environment={"KAKEYA_WORKER_WEIGHTS": "int8"}) as up,
    ):
        async with AsyncClient(up.wait_ready(), max_attempts=1) as client:
            undisturbed = await client.create_session()
            expected = [await _turn(undisturbed, 0), await _turn(undisturbed, 20)]
            sessions = [await client.create_session() for _ in range(5)]
            assert [await _turn(session, 0) for session in sessions] == [expected[0]] * 5
            disk.fill()
            await eventually(lambda: _is_refused(undisturbed))
            assert f"the disk of {disk.path}/data/redis is full: " in up.wait_said("kakeya up: redis ended: ")
            supervisor_log = disk.path / "data" / "logs" / "supervisor.log"
            await eventually(lambda: _says(supervisor_log, "gave up: redis"))  # supervisord: `kakeya up` goes on
            assert "MiB more are needed" in await _refusal(up, undisturbed)
            doctor = [sys.executable, "-P", "-m", "kakeya", "doctor", "--json", "--address", up.address]
            told = subprocess.run(doctor, capture_output=True, text=True, timeout=120)  # noqa: ASYNC221  # nothing else runs here
            (router,) = [each for each in json.loads(told.stdout) if each["subject"] == "router"]
            assert "is full" in router["detail"]
            disk.empty()
            up.wait_said("kakeya up: redis runs again")
            await eventually(lambda: _is_there(sessions[0]))
            assert [await _turn(session, 20) for session in sessions] == [expected[1]] * 5
            for session in sessions:
                assert (await session.info()).history_length == 80
        status, errors = up.wait_end(signal.SIGTERM)
        assert status == 0
        said = [line.partition(": ")[2].split(":")[0] for line in errors.splitlines() if " redis " in line]
        assert said[-2:] == ["redis ended", "redis runs again; all sessions go on"]
        # Started again it may run until its next write, which finds the disk full, too.
        assert all(line.startswith("redis ended and was started again (pid ") for line in said[:-2])


async def _is_refused(session: AsyncSession) -> None:
    """A little may still fit at the end of a file."""
    try:
        await session.append([1], timeout_seconds=60.0)
    except StoreUnavailable as error:
        assert "is full" in error.message
    else:
        raise AssertionError("the disk takes more")


async def _is_there(session: AsyncSession) -> None:
    assert (await session.info(timeout_seconds=60.0)).history_length == 40


async def _says(log: Path, words: str) -> None:
    assert words in await asyncio.to_thread(log.read_text)


def refused(*flags: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """The exit status and the last line of a `kakeya up` that cannot start; nothing may be left of it."""
    with UpProcess(*flags, environment=environment) as up:
        status, errors = up.wait_end()
        assert up.output == ""
        assert up.processes() == []
        assert up.left_files() == []
        assert "Traceback" not in errors
        (line,) = [line for line in errors.splitlines() if "error: " in line]
        assert line == errors.splitlines()[-1]
        return status, line


def test_taken_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        status, line = refused("--ephemeral", "--bind", address)
    assert (status, line) == (1, f"kakeya up: error: cannot listen on {address}: address already in use")


def test_missing_redis() -> None:
    status, line = refused(*EPHEMERAL, environment={"KAKEYA_UP_REDIS_SERVER": "/nowhere/redis-server"})
    assert (status, line) == (1, "kakeya up: error: no Redis server at '/nowhere/redis-server' (--redis-server)")


@pytest.mark.heavy
def test_a_redis_that_cannot_start(tmp_path: Path) -> None:
    broken = tmp_path / "redis-server"
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "Redis server v=7.0.0" && exit 0\necho no luck; exit 1\n'
    )
    broken.chmod(0o755)
    status, line = refused(*EPHEMERAL, "--redis-server", str(broken))
    assert (status, line) == (1, "kakeya up: error: redis: keeps ending; the last it said: no luck")


def test_no_model() -> None:
    status, line = refused(*EPHEMERAL, "--model", "/nowhere/model")
    assert status == 1
    assert line == (
        "kakeya up: error: no model at '/nowhere/model': neither a directory, nor an installed model (kakeya-nano), "
        "nor a hub id (owner/name); `kakeya models list` shows what is on this host"
    )


async def test_an_installed_model_is_served_by_its_name() -> None:
    with UpProcess(*EPHEMERAL, "--model", "kakeya-nano") as up:
        async with AsyncClient(up.wait_ready()) as client:
            (served,) = await client.list_models()
            assert (served.name, served.num_lane_tokens, served.is_default) == ("kakeya-nano", 4 + 64, True)


@pytest.mark.heavy
def test_a_model_that_the_worker_refuses(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2"}))
    status, line = refused(*EPHEMERAL, "--model", str(tmp_path))
    assert status == 1
    assert line.startswith("kakeya up: error: worker-1: ")
    assert "mamba2" in line.lower()


@pytest.mark.heavy
def test_a_damaged_model(tmp_path: Path) -> None:
    damaged = tmp_path / "model"
    shutil.copytree(installed_models.directory("kakeya-nano"), damaged)
    weights = (damaged / "model.safetensors").read_bytes()
    (damaged / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    status, line = refused(*EPHEMERAL, "--model", str(damaged))
    assert status == 1
    assert line.startswith("kakeya up: error: worker-1: ")


@pytest.mark.heavy
def test_a_tokenizer_of_a_newer_library(tmp_path: Path) -> None:
    """At once: no process is started again."""
    newer = tmp_path / "model"
    shutil.copytree(installed_models.directory("kakeya-nano"), newer)
    tokenizer = json.loads((newer / "tokenizer.json").read_text())
    tokenizer["model"]["type"] = "Newer"
    (newer / "tokenizer.json").write_text(json.dumps(tokenizer))
    with UpProcess(*EPHEMERAL, "--model", str(newer), "--http-bind", "127.0.0.1:0") as up:
        status, errors = up.wait_end()
        assert up.processes() == []
    assert status == 1
    assert "started again" not in errors
    assert errors.splitlines()[-1].startswith(
        f"kakeya up: error: http: no tokenizer can be loaded from '{newer}': data did not match any variant"
    )


@pytest.mark.heavy
def test_a_window_that_the_model_has_no_positions_for() -> None:
    status, line = refused("--ephemeral", "--bind", "127.0.0.1:0", "--window", "100000")
    assert status == 1
    assert "positions" in line


def test_a_taken_port_of_http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        status, line = refused(*EPHEMERAL, "--http-bind", address)
    assert (status, line) == (
        1,
        f"kakeya up: error: cannot listen on {address}: address already in use; choose another --http-bind, or `none`",
    )


@pytest.mark.heavy
def test_a_shim_that_refuses_its_settings() -> None:
    status, line = refused(
        *EPHEMERAL, "--http-bind", "127.0.0.1:0", environment={"KAKEYA_HTTP_TOKENIZER": "a=/nowhere"}
    )
    assert status == 1
    assert line.startswith("kakeya up: error: http: ")
    assert "/nowhere" in line


def test_a_bad_flag() -> None:
    status, line = refused("--bind", "nonsense")
    assert status == 2
    assert line.startswith("kakeya up: error: --bind (KAKEYA_UP_BIND): ")


@pytest.mark.heavy
def test_a_data_directory_holds_one_stack(tmp_path: Path) -> None:
    flags = (*EPHEMERAL[1:], "--data-dir", str(tmp_path))
    with UpProcess(*flags) as up:
        up.wait_ready()
        status, line = refused(*flags)
        assert status == 1
        assert line == (
            f"kakeya up: error: another `kakeya up` (pid {up.pid}) runs in {tmp_path}; choose another --data-dir"
        )
        assert up.wait_end(signal.SIGTERM)[0] == 0


def test_stopped_while_it_starts() -> None:
    with UpProcess(*EPHEMERAL) as up:
        while not any(_is_redis(process) for process in up.processes()):
            time.sleep(0.02)
        status, errors = up.wait_end(signal.SIGINT)
        assert status == 0, errors
        assert up.processes() == []


def _is_redis(process: psutil.Process) -> bool:
    # Not by name: psutil remembers the one that a process had before it became another program.
    try:
        return "redis-server" in " ".join(process.cmdline()[:1])
    except psutil.NoSuchProcess:
        return False  # it has ended since it was listed
