"""`kakeya up --auth keys` and the operators' commands, by hand: who may come in, and what they may use."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kakeya import AsyncClient, QuotaExceeded, SessionNotFound, Unauthenticated, tls_credentials
from tests.certificates import Authority
from tests.end_to_end.test_up import check_http
from tests.end_to_end.up_process import UpProcess

pytestmark = pytest.mark.timeout(300)
FLAGS = ("--bind", "127.0.0.1:0", "--window", "64", "--lanes", "4", "--threads", "1", "--auth", "keys")


class Command:
    """The `kakeya` command of somebody who has a key."""

    def __init__(self, address: str, api_key: str, **environment: str) -> None:
        self._environment = {"KAKEYA_ADDRESS": address, "KAKEYA_API_KEY": api_key} | environment

    def __call__(self, line: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kakeya", *line.split()]
        return subprocess.run(
            command, env=os.environ | self._environment, capture_output=True, text=True, timeout=60, check=False
        )

    def done(self, line: str) -> str:
        """What it prints; it must succeed."""
        done = self(line)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def listed(self, line: str) -> Any:
        return json.loads(self.done(f"{line} --json"))


async def eventually_refused(call: Callable[[], Awaitable[Any]], kind: type[Exception]) -> None:
    """Repeats a call until it is refused; what is known of keys and quotas may be a second old."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            await call()
        except kind:
            return
    raise AssertionError("it is not refused")


async def use_one(client: AsyncClient) -> None:
    async with await client.create_session():
        pass


def files_of(*places: Path) -> list[Path]:
    return [path for place in places for path in place.rglob("*") if path.is_file()]


def key_of(up: UpProcess) -> str:
    """The key in the file that it names, since nothing here is a terminal."""
    file = Path(up.wait_said("kakeya up: clients need a key. This run's administrator has the one in --api-key-file "))
    assert file.stat().st_mode & 0o777 == 0o600
    return file.read_text().strip()


@pytest.mark.heavy
async def test_a_key_of_this_run_is_in_a_file_as_long_as_it_lasts(tmp_path: Path) -> None:
    with UpProcess(*FLAGS, "--data-dir", str(tmp_path)) as up:
        address = up.wait_ready()
        key = key_of(up)
        assert re.fullmatch(r"kakeya_key_[0-9a-f]{12}_[\w-]{43}", key)
        token = up.process("worker-1").environ()["KAKEYA_WORKER_TOKEN"]
        async with AsyncClient(address, api_key=key) as client, await client.create_session() as session:
            assert len(await session.turn([1, 2, 3], max_tokens=4).all()) == 4
        async with AsyncClient(address) as stranger:
            with pytest.raises(Unauthenticated):
                await stranger.create_session()
        anybody = Command(address, "")
        refused = anybody("workers list")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "set KAKEYA_API_KEY or pass --api-key-file" in refused.stderr
        assert Command(address, key).done(f"doctor --address {address}")
        for secret in (key, token):
            found = [path for path in files_of(tmp_path, up.temporary) if secret.encode() in path.read_bytes()]
            assert found == ([tmp_path / "admin-key"] if secret == key else [])
            assert not [process for process in up.processes() if secret in " ".join(process.cmdline())]
        status, errors = up.wait_end(signal.SIGTERM)
        assert status == 0
        assert not [path for path in files_of(tmp_path) if key.encode() in path.read_bytes()]
        for secret in (key, token):
            assert secret not in errors + up.output


@pytest.mark.heavy
async def test_keys_tenants_and_quotas(tmp_path: Path) -> None:
    own_key = "an-administrators-own-key-0123456789"
    environment = {"KAKEYA_ROUTER_ADMIN_KEY": own_key, "KAKEYA_ROUTER_ADMISSION": "reject"}
    with UpProcess(*FLAGS, "--data-dir", str(tmp_path), environment=environment) as up:
        address = up.wait_ready()
        operator = Command(address, own_key)
        acme, beta = (
            operator.done(f"keys create --tenant {name} --expires-in 1h").strip() for name in ("acme", "beta")
        )
        assert {key["tenant"] for key in operator.listed("keys list")} == {"acme", "beta"}
        async with AsyncClient(address, api_key=acme) as client, AsyncClient(address, api_key=beta) as foreigner:
            session = await client.create_session(label="of acme")
            await session.append([1, 2, 3])
            with pytest.raises(SessionNotFound):
                await foreigner.session(session.id).info()
            (listed,) = operator.listed("sessions list --tenant acme")
            assert (listed["session_id"], listed["client_label"], listed["history_length"]) == (
                session.id, "of acme", 3,
            )  # fmt: skip
            assert operator.listed("sessions list --tenant beta") == []
            may_not = Command(address, acme)("sessions list")
            assert may_not.returncode == 1
            assert "`kakeya keys create --scope admin`" in may_not.stderr

            assert "at most 1 sessions" in operator.done("tenants set acme --max-sessions 1")
            await eventually_refused(lambda: use_one(client), QuotaExceeded)
            (tenant,) = [tenant for tenant in operator.listed("tenants list") if tenant["name"] == "acme"]
            assert (tenant["has_own_quota"], tenant["quota"]["max_sessions"]) == (True, 1)
            assert tenant["usage"][0]["num_sessions"] >= 1
            closed = [operator.done(f"sessions close {one['session_id']}") for one in operator.listed("sessions list")]
            assert f"closed {session.id} at 3 tokens\n" in closed
            last = await client.create_session()

            (key,) = operator.listed("keys list --tenant acme")
            assert operator.done(f"keys revoke {key['key_id']}") == f"revoked {key['key_id']} of tenant acme\n"
            await eventually_refused(last.info, Unauthenticated)
            operator.done(f"sessions close {last.id}")
        worker = operator.listed("workers list")[0]
        assert (worker["worker_id"], worker["num_lanes"], worker["reserved_bytes"]) == ("worker-1", 4, 0)
        operator.done("tokens create --pool nowhere --label e2e")
        (token,) = operator.listed("tokens list")
        assert (token["pool"], token["label"], token["expires_at"]) == ("nowhere", "e2e", None)
        assert operator.done(f"tokens revoke {token['token_id']}") == f"revoked {token['token_id']}\n"
        assert up.wait_end(signal.SIGTERM)[0] == 0
        assert "clients need a key" not in up.errors, "it is the user's own and need not be shown"
        hits = [
            path for path in files_of(tmp_path) for key in (own_key, acme, beta) if key.encode() in path.read_bytes()
        ]
        assert hits == []


@pytest.mark.heavy
async def test_keys_outlive_the_run_that_made_them(tmp_path: Path) -> None:
    flags = (*FLAGS, "--data-dir", str(tmp_path))
    with UpProcess(*flags) as up:
        operator = Command(up.wait_ready(), key_of(up))
        key = operator.done("keys create --tenant acme").strip()
        up.wait_end(signal.SIGTERM)
    with UpProcess(*flags) as again:
        async with AsyncClient(again.wait_ready(), api_key=key) as client, await client.create_session():
            pass
        assert again.wait_end(signal.SIGTERM)[0] == 0


@pytest.mark.heavy
async def test_keys_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.pair("router")
    environment = {
        "KAKEYA_ROUTER_TLS_CERT": str(pair.cert),
        "KAKEYA_ROUTER_TLS_KEY": str(pair.key),
        "KAKEYA_TLS_CA": str(authority.path),
    }
    with UpProcess("--ephemeral", *FLAGS, "--http-bind", "127.0.0.1:0", environment=environment) as up:
        address = up.wait_ready()
        key = key_of(up)
        check_http(up, KAKEYA_API_KEY=key)
        credentials = tls_credentials(ca=authority.path)
        async with (
            AsyncClient(address, api_key=key, credentials=credentials) as client,
            await client.create_session() as session,
        ):
            assert len(await session.turn([1, 2, 3], max_tokens=4).all()) == 4
        operator = Command(address, key, KAKEYA_TLS_CA=str(authority.path))
        assert [worker["worker_id"] for worker in operator.listed("workers list")] == ["worker-1"]
        operator.done("doctor")
        plain = Command(address, key)("workers list")
        assert plain.returncode == 1
        assert "no runtime answers" in plain.stderr
        assert up.wait_end(signal.SIGTERM)[0] == 0


def test_an_open_bind_is_refused() -> None:
    with UpProcess("--ephemeral", "--bind", "0.0.0.0:0") as up:
        status, errors = up.wait_end()
        assert status == 2
        assert "--bind 0.0.0.0 is outside loopback and keys are not asked for" in errors.splitlines()[-1]
        assert up.processes() == []
