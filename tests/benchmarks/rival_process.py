"""A rival of Kakeya in a benchmark: a server that runs as a process of its own."""

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from tests.benchmarks.logged_command import end_of
from tests.redis_server import free_port

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.1"

_START_SECONDS = 120.0  # loading a model from a cold disk
_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.05
_HEALTH_SECONDS = 5.0
_DYING_SECONDS = 0.5  # its connections break before its status is known

Command = Sequence[str | Path]


class RivalFailed(Exception):
    """A rival did not start, or ended before it was stopped; the message says how and quotes the end of its log."""


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
    port = free_port()
    with ExitStack() as stack:
        log = Path(stack.enter_context(tempfile.NamedTemporaryFile(prefix="kakeya-rival-", suffix=".log")).name)
        process = stack.enter_context(_started(command(port), log))
        stack.callback(_stop, process)
        rival = Rival(f"http://{HOST}:{port}", process.pid)
        _wait_until_ready(process, rival.url, log)
        try:
            yield rival
        except Exception as error:  # perhaps because the rival died
            with suppress(subprocess.TimeoutExpired):
                process.wait(_DYING_SECONDS)
            _check_runs(process, log, error)
            raise
        _check_runs(process, log)


def _started(command: Command, log: Path) -> "subprocess.Popen[bytes]":
    with log.open("wb") as output:
        return subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)


def _wait_until_ready(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not _is_ready(url):
        _check_runs(process, log)
        if time.monotonic() > deadline:
            raise RivalFailed(f"{process.args!r} was not ready after {_START_SECONDS:g} s:\n{end_of(log)}")
        time.sleep(_POLL_SECONDS)


def _is_ready(url: str) -> bool:
    try:
        with urlopen(f"{url}/health", timeout=_HEALTH_SECONDS) as response:
            return bool(response.status == 200)
    except (HTTPError, URLError, HTTPException, OSError):
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
