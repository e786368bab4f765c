"""All lanes are taken: whoever comes next waits, is told so, and gets in when one comes free."""

import asyncio
import inspect
import json
import os
import subprocess
import sys
import time

import pytest

from kakeya import AsyncClient, Client
from kakeya_router.settings import RouterSettings
from tests.end_to_end.up_process import UpProcess

pytestmark = pytest.mark.timeout(300)
FLAGS = ("--ephemeral", "--bind", "127.0.0.1:0", "--window", "64", "--lanes", "1", "--threads", "1")


def kakeya(address: str, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "kakeya", *words],
        env=os.environ | {"KAKEYA_ADDRESS": address},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def num_waiting(address: str) -> int:
    output, errors = kakeya(address, "tenants", "list", "--json").communicate(timeout=60)
    usage = [pool for tenant in json.loads(output or "[]") for pool in tenant["usage"]]
    assert not errors
    return sum(pool["num_waiting"] for pool in usage)


async def wait_until_waiting(address: str) -> None:
    deadline = time.monotonic() + 60
    while await asyncio.to_thread(num_waiting, address) == 0:
        assert time.monotonic() < deadline, "nobody waits"


async def test_a_call_waits_for_its_lane() -> None:
    with UpProcess(*FLAGS) as up:
        address = up.wait_ready()
        async with AsyncClient(address) as client:
            first = await client.create_session()
            second = asyncio.create_task(client.create_session())
            await wait_until_waiting(address)
            assert not second.done()
            await first.close()
            async with await second as session:
                assert (await session.append([1, 2, 3])).history_length == 3


async def test_a_person_who_waits_is_told_why() -> None:
    with UpProcess(*FLAGS) as up:
        address = up.wait_ready()
        async with AsyncClient(address) as client, await client.create_session() as session:
            chat = kakeya(address, "chat")
            assert chat.stderr
            line = await asyncio.to_thread(chat.stderr.readline)
            assert line == "waiting for a free lane (Ctrl-C leaves)\n"
            await session.close()
            _, errors = await asyncio.to_thread(chat.communicate, timeout=60)
    assert chat.returncode == 0, errors
    assert errors.startswith("session kakeya-nano.")


@pytest.mark.parametrize("kind", [AsyncClient, Client])
def test_the_clients_patience_outlasts_the_queue(kind: type) -> None:
    timeout_seconds = inspect.signature(kind).parameters["timeout_seconds"].default
    assert timeout_seconds > RouterSettings.model_fields["queue_seconds"].default
