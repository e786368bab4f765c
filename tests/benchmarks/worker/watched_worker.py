"""A worker in a process of its own, without a router, whose anonymous memory is watched, and sessions on it."""

import asyncio
import json
import random
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from kakeya_bench.rivals.command import CommandFailed, end_of
from kakeya_shared.health_command import check
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from kakeya_stubs.worker.v1.verifier_pb2_grpc import VerifierServiceStub
from tests.integration.processes import wait_until
from tests.ports import free_port

_SAMPLE_SECONDS = 0.005
_START_SECONDS = 900.0
_EPOCH = 1


class WatchedWorker:
    """`kakeya worker` until the context ends; it may not serve yet.

    Args:
        flags: beside --bind.

    Attributes:
        peak_anonymous_bytes: the most there has been at once so far.
    """

    def __init__(self, flags: Sequence[str], log: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.peak_anonymous_bytes = 0
        self._log = log
        command = [sys.executable, "-m", "kakeya_worker", "--bind", self.address, *flags]
        with log.open("wb") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)
        self._is_over = threading.Event()
        self._watching = threading.Thread(target=self._watch)

    def __enter__(self) -> "WatchedWorker":
        self._watching.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._watching.join()
        self._process.terminate()
        self._process.wait()

    def anonymous_bytes(self) -> int:
        """Resident memory that belongs to no file, now (Linux: /proc)."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:")), 0)

    def logged(self, event: str) -> dict[str, Any] | None:
        """The first log line of an event."""
        lines = (json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{"))
        return next((line for line in lines if line["event"] == event), None)

    def wait_until_serving(self) -> None:
        """Raises CommandFailed: it has ended instead."""
        poll = self._process.poll
        wait_until(lambda: poll() is not None or check(self.address) == "SERVING", "it serves", _START_SECONDS)
        if poll() is not None:
            raise CommandFailed(f"the worker ended with status {self._process.returncode}:\n{end_of(self._log)}")

    def _watch(self) -> None:
        while not self._is_over.wait(_SAMPLE_SECONDS) and self._process.poll() is None:
            self.peak_anonymous_bytes = max(self.peak_anonymous_bytes, self.anonymous_bytes())


class WorkerSessions:
    """Opens sessions in lanes of their own; an asynchronous context manager.

    Args:
        num_tokens: token ids are below it.
    """

    def __init__(self, address: str, num_sessions: int, num_tokens: int) -> None:
        self._address = address
        self._num_tokens = num_tokens
        self._random = random.Random(0)
        self._lengths = {f"session-{number}": 0 for number in range(num_sessions)}

    async def __aenter__(self) -> "WorkerSessions":
        self._channel = grpc.aio.insecure_channel(self._address)
        self._stub: Any = VerifierServiceStub(self._channel)
        for name in self._lengths:
            await self._stub.OpenSession(pb.OpenSessionRequest(session_id=name, epoch=_EPOCH))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def slab_bytes(self) -> int:
        """Of all lanes, used or not."""
        slab = await self._stub.GetSlab(pb.GetSlabRequest())
        return int(slab.slab_bytes)

    async def turns(self, num_appended: int, num_generated: int) -> None:
        """One turn of each session."""
        await asyncio.gather(*(self._turn(name, num_appended, num_generated) for name in self._lengths))

    async def _turn(self, name: str, num_appended: int, num_generated: int) -> None:
        lease: dict[str, Any] = {"session_id": name, "epoch": _EPOCH}
        token_ids = self._random.choices(range(self._num_tokens), k=num_appended)
        append = pb.AppendRequest(**lease, history_length=self._lengths[name], token_ids=token_ids)
        self._lengths[name] = (await self._stub.Append(append)).lane.history_length
        generate = pb.GenerateRequest(**lease, history_length=self._lengths[name], max_tokens=num_generated)
        async for response in self._stub.Generate(generate):
            if response.HasField("done"):
                self._lengths[name] = response.done.lane.history_length
