"""`kakeya http` as an operator meets it: what it says at its start, and to `curl -I`. Nothing else runs."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.parser import HeaderParser
from pathlib import Path

import httpx
import pytest

from kakeya_shared.process.service_process import EXIT_CONFIG
from tests.integration.processes import http_status, wait_until
from tests.ports import free_port

NOWHERE = "127.0.0.1:1"
SUCCESSOR = "https://example.com/grpc"
DEPRECATED = ("--deprecated-since", "2026-11-01", "--sunset", "2027-06-30", "--successor", SUCCESSOR)


def command(*flags: str) -> list[str]:
    return [sys.executable, "-m", "kakeya", "http", "--router", NOWHERE, *flags]


@dataclass
class Alone:
    """A shim whose router is not there.

    Attributes:
        errors: its standard error.
    """

    process: "subprocess.Popen[bytes]"
    address: str
    errors: Path

    def answers(self) -> bool:
        assert self.process.poll() is None, self.errors.read_text()
        return http_status(self.address, "/healthz") == 200

    def first_lines(self, number: int) -> list[str]:
        """Of what it says, once that is so much."""
        wait_until(lambda: self.errors.read_text().count("\n") >= number, f"{number} lines are said")
        return self.errors.read_text().splitlines()[:number]


@contextmanager
def alone(directory: Path, *flags: str) -> Iterator[Alone]:
    address, errors = f"127.0.0.1:{free_port()}", directory / "errors"
    with errors.open("wb") as output:
        process = subprocess.Popen(command("--bind", address, *flags), stderr=output)
    try:
        shim = Alone(process, address, errors)
        wait_until(shim.answers, "it listens")
        yield shim
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()


def head(url: str) -> tuple[int, dict[str, str]]:
    """Status and headers, as `curl -I` shows them where there is curl."""
    if shutil.which("curl") is None:
        answer = httpx.head(url)
        return answer.status_code, dict(answer.headers)
    shown = subprocess.run(
        ["curl", "--silent", "--show-error", "--noproxy", "*", "-I", url], capture_output=True, text=True, check=True
    )
    status, _, headers = shown.stdout.partition("\n")
    parsed = HeaderParser().parsestr(headers)
    return int(status.split()[1]), {name.lower(): value for name, value in parsed.items()}


def test_curl_shows_that_it_is_deprecated(tmp_path: Path) -> None:
    with alone(tmp_path, *DEPRECATED, "--block-size", "8", "--num-diffusion-steps=4") as shim:
        for path, status in (("/healthz", 200), ("/readyz", 503), ("/v1/models", 503), ("/nothing", 404)):
            shown, headers = head(f"http://{shim.address}{path}")
            assert shown == status
            assert headers["deprecation"] == f"@{int(datetime(2026, 11, 1, tzinfo=UTC).timestamp())}"
            assert headers["sunset"] == "Wed, 30 Jun 2027 00:00:00 GMT"
            assert headers["link"] == f'<{SUCCESSOR}>; rel="successor-version"'
        launcher, banner, serving = shim.first_lines(3)
        assert "warning: --block-size, --num-diffusion-steps" in launcher
        assert '"level": "warning"' in banner
        assert "deprecated since 2026-11-01, gone on 2027-06-30" in banner
        assert SUCCESSOR in banner
        assert '"event": "serving"' in serving


def test_nothing_is_deprecated_unless_the_operator_says_so(tmp_path: Path) -> None:
    with alone(tmp_path) as shim:
        status, headers = head(f"http://{shim.address}/healthz")
        assert status == 200
        assert not headers.keys() & {"deprecation", "sunset", "link"}
        (serving,) = shim.first_lines(1)
        assert '"event": "serving"' in serving
        assert "deprecated" not in shim.errors.read_text()


def test_a_tokenizer_of_a_newer_library_ends_it_with_one_line_and_for_good(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "Newer"}, "added_tokens": []}')
    ended = subprocess.run(
        command("--bind", "127.0.0.1:0", "--tokenizer", f"newer={tmp_path}"), capture_output=True, text=True
    )
    assert ended.returncode == EXIT_CONFIG
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"kakeya http: error: no tokenizer can be loaded from '{tmp_path}': ")


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--deprecated-since", "2027-06-30", "--sunset", "2026-11-01"), "2026-11-01 is before"),
        (("--sunset", "2027-06-30"), "--deprecated-since"),
    ],
)
def test_a_sunset_before_the_deprecation_is_refused(flags: Sequence[str], reason: str) -> None:
    refused = subprocess.run(command(*flags), capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2
    assert reason in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not refused.stdout
