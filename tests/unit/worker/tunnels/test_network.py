"""A machine that sleeps, and one that comes to another network."""

import asyncio
import socket

import pytest

from kakeya_worker.tunnels import network
from kakeya_worker.tunnels.network import Network, own_addresses


async def test_a_sleep_is_noticed() -> None:
    day, awake = [1_000.0], [10.0]
    watch = Network(lambda: ("10.0.0.1",), lambda: day[0], lambda: awake[0], look_seconds=0.001)
    changed = asyncio.create_task(watch.changed())
    await asyncio.sleep(0.05)
    assert not changed.done()
    day[0] += 2  # the clock was set
    await asyncio.sleep(0.05)
    day[0] += 600
    assert await asyncio.wait_for(changed, 60) == "this machine has slept"


async def test_other_addresses_are_noticed() -> None:
    addresses = [("10.0.0.1", "")]
    watch = Network(lambda: addresses[0], look_seconds=0.001)
    changed = asyncio.create_task(watch.changed())
    await asyncio.sleep(0.05)
    assert not changed.done()
    addresses[0] = ("192.168.1.2", "")
    assert await asyncio.wait_for(changed, 60) == "this machine's addresses have changed"


def test_a_machine_without_a_network_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_ANYWHERE", ((socket.AF_INET, "no address"),))
    assert own_addresses() == ("",)


def test_its_addresses_are_two_texts() -> None:
    four, six = own_addresses()
    assert "." in four or four == ""
    assert ":" in six or six == ""
