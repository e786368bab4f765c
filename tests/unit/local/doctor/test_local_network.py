"""macOS's Local Network privacy is named where it is what keeps a connection away, and nowhere else."""

import platform
from pathlib import Path

import grpc
import pytest

from kakeya.cli.flags.connection import Connection
from kakeya_local.doctor import local_network, reachability
from kakeya_local.doctor.findings import Condition

DETAILS = "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.9:50051: No route to host"


@pytest.fixture
def ping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """macOS 15 with a ping that this machine has not."""
    script = tmp_path / "ping"
    answers(script, 0)
    monkeypatch.setattr(local_network, "_PING", str(script))
    monkeypatch.setattr(platform, "mac_ver", lambda: ("15.1", ("", "", ""), "arm64"))
    return script


def answers(script: Path, status: int) -> None:
    script.write_text(f'#!/bin/sh\n[ "$5" = 10.0.0.9 ] && exit {status}\nexit 9\n')
    script.chmod(0o755)


def test_an_address_that_answers_a_ping_and_no_connection(ping: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_network.keeps_away("10.0.0.9:50051", DETAILS)
    assert not local_network.keeps_away("10.0.0.9:50051", "Connection refused")
    assert not local_network.keeps_away("[", DETAILS)
    answers(ping, 2)
    assert not local_network.keeps_away("10.0.0.9:50051", DETAILS), "the host is away"
    ping.unlink()
    assert not local_network.keeps_away("10.0.0.9:50051", DETAILS)


@pytest.mark.parametrize("version", ["14.7", ""])
def test_older_systems_and_others_have_no_such_thing(ping: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(platform, "mac_ver", lambda: (version, ("", "", ""), "arm64"))
    assert not local_network.keeps_away("10.0.0.9:50051", DETAILS)


async def test_the_doctor_names_it(ping: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a Mac's gRPC says stands for a connection that no machine without that privacy can make."""

    async def refused(_: object) -> str:
        unavailable = grpc.StatusCode.UNAVAILABLE
        raise grpc.aio.AioRpcError(unavailable, grpc.aio.Metadata(), grpc.aio.Metadata(), details=DETAILS)

    monkeypatch.setattr(reachability, "health", refused)
    (finding,) = [each async for each in reachability.probe_router(Connection("10.0.0.9:50051"), asked_for=True)]
    assert finding.condition is Condition.WRONG
    assert "10.0.0.9:50051 answers a ping" in finding.detail
    assert "macOS keeps this program from hosts of the local network" in finding.detail
    assert "Privacy & Security, Local Network" in finding.cure
