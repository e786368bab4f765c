"""mTLS on both hops, with keys and tokens, in real processes: a conversation, intruders, certificates that change."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

import kakeya
from kakeya_shared.health_command import check
from tests.certificates import Authority, Pair
from tests.integration.processes import ADMIN_KEY_VARIABLE, Runtime, asking_for_keys, runtime


@dataclass
class Secured:
    """A runtime whose router and workers show certificates and ask for them."""

    runtime: Runtime
    authority: Authority
    router: Pair
    worker: Pair
    client: Pair

    @property
    def credentials(self) -> grpc.ChannelCredentials:
        return kakeya.tls_credentials(ca=self.authority.path, cert=self.client.cert, key=self.client.key)

    def connect(self) -> kakeya.AsyncClient:
        key = self.runtime.environment[ADMIN_KEY_VARIABLE]
        return kakeya.AsyncClient(self.runtime.address, credentials=self.credentials, api_key=key)


def _environment(authority: Authority, router: Pair, worker: Pair) -> dict[str, str]:
    variables = asking_for_keys()
    for service, pair, other in (("ROUTER", router, "WORKER_CA"), ("WORKER", worker, "ROUTER_CA")):
        variables |= {
            f"KAKEYA_{service}_TLS_CERT": str(pair.cert),
            f"KAKEYA_{service}_TLS_KEY": str(pair.key),
            f"KAKEYA_{service}_TLS_CLIENT_CA": str(authority.path),
            f"KAKEYA_{service}_{other}": str(authority.path),
        }
    return variables


@pytest.fixture(scope="module")
def secured(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    router, worker, client = (authority.pair(name) for name in ("router", "worker", "client"))
    credentials = kakeya.tls_credentials(ca=authority.path, cert=client.cert, key=client.key)
    environment = _environment(authority, router, worker)
    logs = tmp_path_factory.mktemp("logs")
    with runtime(model, logs, num_workers=1, environment=environment, credentials=credentials) as made:
        yield Secured(made, authority, router, worker, client)


async def test_a_conversation_over_mtls_on_both_hops(secured: Secured) -> None:
    async with secured.connect() as client, await client.create_session() as session:
        for turn in range(3):
            await session.append(range(turn, turn + 10))
            async with session.generate(max_tokens=5) as generation:
                assert len([token async for token in generation]) == 5
        assert (await session.info()).history_length == 45


@pytest.mark.parametrize("service", ["routers", "workers"])
async def test_nobody_gets_in_without_a_certificate_of_the_authority(
    secured: Secured, service: str, tmp_path: Path
) -> None:
    address = getattr(secured.runtime, service)[0].address
    stranger = Authority(tmp_path, "stranger").pair("stranger")
    expired = secured.authority.pair("expired", expired=True)

    async def health(pair: Pair | None) -> str:
        names = {"cert": pair.cert, "key": pair.key} if pair else {}
        credentials = kakeya.tls_credentials(ca=secured.authority.path, **names)
        return await asyncio.to_thread(check, address, credentials=credentials)

    assert await health(secured.client) == "SERVING"
    for pair in (None, stranger, expired):
        assert await health(pair) == "UNAVAILABLE"
    assert await asyncio.to_thread(check, address) == "UNAVAILABLE"


def _health_command(address: str, variables: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "kakeya", "health", address]
    environment = {**os.environ, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_the_health_command_takes_its_files_from_the_environment(secured: Secured) -> None:
    address = secured.runtime.address
    variables = {
        "KAKEYA_TLS_CA": str(secured.authority.path),
        "KAKEYA_TLS_CERT": str(secured.client.cert),
        "KAKEYA_TLS_KEY": str(secured.client.key),
    }
    served = _health_command(address, variables)
    assert (served.returncode, served.stdout) == (0, f"{address} SERVING\n"), served.stderr
    assert _health_command(address, {}).returncode == 1


def _replace(old: Pair, new: Pair) -> None:
    os.replace(new.cert, old.cert)
    os.replace(new.key, old.key)


async def _replace_all(secured: Secured) -> None:
    """Replaces every certificate, and sees that new connections are made with the new ones."""
    for pair in (secured.router, secured.worker, secured.client):
        _replace(pair, secured.authority.pair(f"{pair.cert.stem}-2"))
    async with secured.connect() as another, await another.create_session() as session:
        await session.append([1, 2, 3])


async def test_certificates_are_replaced_under_traffic(secured: Secured) -> None:
    async with secured.connect() as client, await client.create_session() as session:
        await session.append(range(10))
        async with session.generate(max_tokens=200) as generation:
            num_tokens = 0
            async for _ in generation:
                num_tokens += 1
                if num_tokens == 1:
                    await _replace_all(secured)
        assert num_tokens == 200
    logs = [process.log.read_text() for process in (*secured.runtime.routers, *secured.runtime.workers)]
    for log in logs:
        assert "TLS files have changed; new connections use them" in log
