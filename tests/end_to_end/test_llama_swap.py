"""What llama-swap documents of a server that it starts, asks and stops: a port by flag, `/health`, SIGTERM."""

import signal
import time
import urllib.error
import urllib.request

import httpx
import pytest

from tests.end_to_end.up_process import UpProcess
from tests.ports import free_port

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]
_FLAGS = ("--ephemeral", "--bind", "127.0.0.1:0", "--window", "64", "--lanes", "2", "--threads", "1")
_HEALTH_CHECK_SECONDS = 120.0
"""Its `healthCheckTimeout`, unless it is told otherwise."""
_GRACE_SECONDS = 10.0
"""From SIGTERM to SIGKILL."""


def health(port: int) -> int | None:
    """The status of /health as it asks for it; None where nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5.0) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except (urllib.error.URLError, ConnectionError):
        return None


def test_its_contract() -> None:
    port = free_port()
    with UpProcess(*_FLAGS, "--http-bind", f"127.0.0.1:{port}") as up:
        seen = set()
        deadline = time.monotonic() + _HEALTH_CHECK_SECONDS
        while (status := health(port)) != 200:
            seen.add(status)
            assert time.monotonic() < deadline, f"not healthy in time: {seen}"
            time.sleep(0.1)
        assert seen <= {None, 503}, "nothing else before it is ready"
        answer = httpx.post(
            f"http://127.0.0.1:{port}/v1/chat/completions",
            json={"model": "kakeya-nano", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4},
            headers={"host": "localhost:8080"},  # it passes on what its own client said
            timeout=60,
        )
        assert answer.status_code == 200, answer.text
        began_at = time.monotonic()
        up.wait_end(signal.SIGTERM)
        assert time.monotonic() - began_at < _GRACE_SECONDS
        up.wait_no_process()
        assert health(port) is None
