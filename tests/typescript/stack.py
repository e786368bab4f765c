"""Runtimes of real processes for the tests of the TypeScript SDK, which start them and end them.

    python -m tests.typescript.stack SOCKET plain secured

Tests connect to SOCKET, as many as want to, and write lines of JSON, each of which is answered by a line:
`{"of": "plain", "do": "where"}`. All end with the standard input.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from threading import Lock, Thread
from typing import Any

import grpc
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import kakeya
from tests.certificates import Authority
from tests.integration.otlp_receiver import OtlpReceiver, otlp_receiver
from tests.integration.processes import ADMIN_KEY_VARIABLE, PATIENT, Process, Runtime, asking_for_keys, runtime
from tests.random_checkpoint import save_random_checkpoint
from tests.typescript.conversation import converse

FLAGS = ("--heartbeat-interval-seconds=0.3", "--reap-interval-seconds=0.2", "--recovery-seconds=0.1")
NUM_WORKERS = {"plain": 2, "secured": 1}


class Stack:
    """What tests ask of one.

    Attributes:
        said: where it is: addresses, and of a secured one its files and the administrator's key.
    """

    def __init__(self, made: Runtime, receiver: OtlpReceiver, said: dict[str, Any]) -> None:
        self._made, self._receiver = made, receiver
        self.said = said | {"addresses": [router.address for router in made.routers], "model": made.model.name}

    def where(self) -> dict[str, Any]:
        return self.said

    def start_router(self, flags: Sequence[str] = ()) -> str:
        """A further one; returns its address."""
        return self._made.start_router(*FLAGS, *flags).address

    def kill_router(self, address: str) -> None:
        router = next(each for each in self._made.routers if each.address == address)
        router.kill()
        self._made.routers.remove(router)

    def stop_router(self, address: str) -> None:
        """As its operator does."""
        router = next(each for each in self._made.routers if each.address == address)
        router.terminate()
        self._made.routers.remove(router)

    def pause_store(self) -> None:
        self._made.redis.pause()

    def resume_store(self) -> None:
        self._made.redis.resume()

    def kill_worker(self, session: str) -> str:
        """That of a session; returns its id. Another one takes its place."""
        worker = self._worker(session)
        worker.kill()
        self._made.workers.remove(worker)
        self._made.start_worker(lanes=32)
        return worker.worker_id

    def wait_for_workers(self) -> None:
        """All that there are have joined."""
        self._made.wait_for_workers(NUM_WORKERS["plain"])

    def converse(self, script: list[dict[str, Any]], trace_context: dict[str, str]) -> list[dict[str, Any]]:
        """The same conversation by the Python SDK: what each step came to."""
        return asyncio.run(converse(self._made.address, script, trace_context))

    def spans(self, trace_id: str) -> list[dict[str, Any]]:
        """Those of a trace that have come so far, of all processes but the tests' own."""
        return [
            {
                "service": span.service,
                "name": span.name,
                "id": span.span_id,
                "parent": span.parent_id,
                "is_error": span.is_error,
            }
            for span in self._receiver.spans
            if span.trace_id == trace_id
        ]

    def _worker(self, session_id: str) -> Process:
        with kakeya.Client(self._made.address) as client:
            worker_id = client.session(session_id).info().worker
        return next(each for each in self._made.workers if each.worker_id == worker_id)


@contextmanager
def stack(model: Path, directory: Path, receiver: OtlpReceiver, *, secured: bool) -> Iterator[Stack]:
    """Two routers and two workers with one snapshot store, whose spans are kept; one of each over TLS and with keys."""
    directory.mkdir()
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
    else:
        environment |= receiver.environment()
    with runtime(
        model, directory, num_workers=0, router_flags=FLAGS, environment=environment, credentials=credentials
    ) as made:
        num_workers = NUM_WORKERS["secured" if secured else "plain"]
        if not secured:
            made.start_router(*FLAGS)
        for _ in range(num_workers):
            made.start_worker(lanes=32)
        made.wait_for_workers(num_workers)
        yield Stack(made, receiver, said)


@contextmanager
def traced(receiver: OtlpReceiver) -> Iterator[None]:
    """The Python SDK's spans come to the receiver, too."""
    provider = TracerProvider(resource=Resource.create({"service.name": "application"}))
    exporter = OTLPSpanExporter(endpoint=f"http://{receiver.address}", insecure=True)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    yield
    provider.shutdown()


class Stacks(ThreadingUnixStreamServer):
    """Serves those who ask; runtimes that are there, and those that are just beginning."""

    daemon_threads = True

    def __init__(self, socket: str, begun: dict[str, Future[Stack]]) -> None:
        super().__init__(socket, _Asking)
        self._begun = begun
        self._locks = {name: Lock() for name in begun}

    def answer(self, of: str, do: str, **given: Any) -> Any:
        with self._locks[of]:
            return getattr(self._begun[of].result(), do)(**given)


class _Asking(StreamRequestHandler):
    """One that asks."""

    server: Stacks

    def handle(self) -> None:
        for line in self.rfile:
            answer = {"answer": self.server.answer(**json.loads(line))}
            self.wfile.write(json.dumps(answer).encode() + b"\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("socket", help="where to listen: a path")
    parser.add_argument("stacks", nargs="+", choices=NUM_WORKERS, help="which runtimes there are to be")
    flags = parser.parse_args()
    Runtime.forks = True
    with (
        tempfile.TemporaryDirectory() as directory,
        otlp_receiver() as receiver,
        traced(receiver),
        ExitStack() as ending,
        ThreadPoolExecutor() as beginning,
    ):
        model = save_random_checkpoint(Path(directory) / "demo")

        def begin(name: str) -> Stack:
            made = stack(model, Path(directory) / name, receiver, secured=name == "secured")
            return ending.enter_context(made)

        begun = {name: beginning.submit(begin, name) for name in flags.stacks}
        with Stacks(flags.socket, begun) as stacks:
            Thread(target=stacks.serve_forever, daemon=True).start()
            sys.stdin.read()
            stacks.shutdown()


if __name__ == "__main__":
    main()
