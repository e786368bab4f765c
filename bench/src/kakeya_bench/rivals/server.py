"""A rival of Kakeya in a bench: a server that runs as a process of its own."""

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from kakeya_bench.rivals.command import RivalFailed, end_of

HOST = "127.0.0.1"
_START_SECONDS = 600.0  # loading a model from a cold disk, on a busy machine
_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.05
_DYING_SECONDS = 0.5  # its connections break before its status is known

Command = Sequence[str | Path]


@dataclass(frozen=True)
class Rival:
    """A server that is ready.

    It answers POST /v1/completions as OpenAI does, for a prompt of token ids: {"model", "prompt": [ids], "max_tokens",
    "temperature": 0, "stream": true, "ignore_eos": true} gets one event a token, as it is generated, whose text is the
    token's id in angle brackets ("<17>"); then one with an empty text, finish_reason and `usage`; then [DONE].

    Attributes:
        url: without a path.
        pid: of the process that holds the model.
    """

    url: str
    pid: int


@contextmanager
def running(command: Callable[[int], Command]) -> Iterator[Rival]:
    """Starts a rival on a free port of loopback, waits until its /health says 200, and stops it at the end.

    Args:
        command: for a port.

    Raises:
        RivalFailed: it did not become ready, or ended by itself.
    """
    with ExitStack() as stack:
        log = stack.enter_context(tempfile.NamedTemporaryFile(prefix="kakeya-rival-", suffix=".log"))
        port = stack.enter_context(_free_port())
        process = stack.enter_context(subprocess.Popen(command(port), stdout=log, stderr=subprocess.STDOUT))
        stack.callback(_stop, process)
        rival = Rival(f"http://{HOST}:{port}", process.pid)
        _wait_until_ready(process, rival.url, Path(log.name))
        try:
            yield rival
        except Exception as error:  # perhaps because the rival died
            with suppress(subprocess.TimeoutExpired):
                process.wait(_DYING_SECONDS)
            _check_runs(process, Path(log.name), error)
            raise
        _check_runs(process, Path(log.name))


@contextmanager
def _free_port() -> Iterator[int]:
    """On Linux it is given to nobody else until this is left; elsewhere it could not be listened on then."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((HOST, 0))
        port = holder.getsockname()[1]
        if sys.platform != "linux":
            holder.close()
        yield port


def _wait_until_ready(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    with httpx.Client(base_url=url, trust_env=False) as client:
        while not _is_ready(client):
            _check_runs(process, log)
            if time.monotonic() > deadline:
                raise RivalFailed(f"{process.args!r} was not ready after {_START_SECONDS:g} s:\n{end_of(log)}")
            time.sleep(_POLL_SECONDS)


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _check_runs(process: "subprocess.Popen[bytes]", log: Path, cause: BaseException | None = None) -> None:
    if process.poll() is not None:
        raise RivalFailed(f"{process.args!r} ended with status {process.returncode}:\n{end_of(log)}") from cause


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(timeout=_STOP_SECONDS)
    except subprocess.TimeoutExpired:  # in the midst of a long prefill
        process.kill()
        process.wait()
