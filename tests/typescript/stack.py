"""A runtime of real processes for the tests of the TypeScript SDK, which start it and end it.

    python -m tests.typescript.stack [--secured]

It says in a line of JSON where it is. Then it does what lines of JSON on its standard input ask for, each answered by a
line, until that ends: `{"do": "kill_worker", "of": SESSION_ID}`.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

import kakeya
from tests.certificates import Authority
from tests.integration.processes import ADMIN_KEY_VARIABLE, PATIENT, Process, Runtime, asking_for_keys, runtime
from tests.random_checkpoint import save_random_checkpoint
from tests.typescript.conversation import converse

FLAGS = ("--heartbeat-interval-seconds=0.3", "--reap-interval-seconds=0.2", "--recovery-seconds=0.1")
NUM_WORKERS = 2


class Stack:
    """What tests ask of it.

    Attributes:
        said: where it is: addresses, and of a secured one its files and the administrator's key.
    """

    def __init__(self, made: Runtime, said: dict[str, Any]) -> None:
        self._made = made
        self.said = said | {"addresses": [router.address for router in made.routers], "model": made.model.name}

    def answer(self, asked: dict[str, Any]) -> Any:
        do = asked.pop("do")
        return getattr(self, do)(**asked)

    def start_router(self) -> str:
        """A further one; returns its address."""
        return self._made.start_router(*FLAGS).address

    def kill_router(self, address: str) -> None:
        router = next(each for each in self._made.routers if each.address == address)
        router.kill()
        self._made.routers.remove(router)

    def kill_worker(self, of: str) -> str:
        """That of a session; returns its id. Another one takes its place."""
        worker = self._worker(of)
        worker.kill()
        self._made.workers.remove(worker)
        self._made.start_worker()
        return worker.worker_id

    def wait_for_workers(self) -> None:
        """All that there are have joined."""
        self._made.wait_for_workers(NUM_WORKERS)

    def converse(self, script: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The same conversation by the Python SDK: what each step came to."""
        return asyncio.run(converse(self._made.address, script))

    def _worker(self, session_id: str) -> Process:
        with kakeya.Client(self._made.address) as client:
            worker_id = client.session(session_id).info().worker
        return next(each for each in self._made.workers if each.worker_id == worker_id)


@contextmanager
def stack(directory: Path, *, secured: bool) -> Iterator[Stack]:
    """Two routers and two workers with one snapshot store; one of each over TLS and with keys."""
    model = save_random_checkpoint(directory / "demo")
    environment = PATIENT | {"KAKEYA_WORKER_SNAPSHOTS": str(directory / "snapshots")}
    credentials: grpc.ChannelCredentials | None = None
    said: dict[str, Any] = {}
    if secured:
        authority = Authority(directory)
        server, client = authority.pair("server"), authority.pair("client")
        files = {"ca": str(authority.path), "cert": str(client.cert), "key": str(client.key)}
        credentials = kakeya.tls_credentials(ca=files["ca"], cert=files["cert"], key=files["key"])
        environment |= asking_for_keys() | {
            "KAKEYA_ROUTER_TLS_CERT": str(server.cert),
            "KAKEYA_ROUTER_TLS_KEY": str(server.key),
            "KAKEYA_ROUTER_TLS_CLIENT_CA": str(authority.path),
            "KAKEYA_WORKER_ROUTER_CA": str(authority.path),
            "KAKEYA_WORKER_TLS_CERT": str(server.cert),
            "KAKEYA_WORKER_TLS_KEY": str(server.key),
            "KAKEYA_WORKER_TLS_CLIENT_CA": str(authority.path),
            "KAKEYA_ROUTER_WORKER_CA": str(authority.path),
        }
        said |= {"files": files, "admin_key": environment[ADMIN_KEY_VARIABLE]}
    Runtime.forks = True
    with runtime(
        model, directory, num_workers=0, router_flags=FLAGS, environment=environment, credentials=credentials
    ) as made:
        if not secured:
            made.start_router(*FLAGS)
        for _ in range(1 if secured else NUM_WORKERS):
            made.start_worker(lanes=32)
        made.wait_for_workers(1 if secured else NUM_WORKERS)
        yield Stack(made, said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--secured", action="store_true", help="TLS on both hops, and keys")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, stack(Path(directory), secured=flags.secured) as made:
        print(json.dumps(made.said), flush=True)
        for line in sys.stdin:
            print(json.dumps({"answer": made.answer(json.loads(line))}), flush=True)


if __name__ == "__main__":
    main()
