"""What the HTTP shim keeps of large prompts."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import requests

from tests.integration.open_http import open_http

NUM_BODIES = 9
MAX_KEPT_BYTES = 80 << 20
_SECONDS = 120.0


def resident_bytes(process: psutil.Process, at_most: int) -> int:
    """As soon as it is no more than that, or after a while."""
    until = time.monotonic() + 60.0
    while (resident := int(process.memory_info().rss)) > at_most and time.monotonic() < until:
        time.sleep(0.2)
    return resident


@pytest.mark.heavy
def test_nothing_stays_of_large_bodies(tmp_path: Path) -> None:
    text = ("The quick brown fox jumps over the lazy dog. " * 200_000)[: 7 << 20]
    bodies = [
        ("chat/completions", json.dumps({"messages": [{"role": "user", "content": text}]})),
        ("completions", json.dumps({"prompt": text})),
        ("completions", json.dumps({"prompt": [1234] * 1_000_000})),
    ]
    with open_http(tmp_path, lanes=2) as made, ThreadPoolExecutor(NUM_BODIES) as pool:
        shim = made.shims[0]
        process = psutil.Process(shim.process.pid)

        def status(number: int) -> tuple[int, str]:
            path, body = bodies[number % len(bodies)]
            headers = {"content-type": "application/json"}
            response = requests.post(f"http://{shim.address}/v1/{path}", body, headers=headers, timeout=_SECONDS)
            return response.status_code, response.json()["error"]["code"]

        assert status(0) == (400, "context_length_exceeded")  # loads what the first request loads
        before = int(process.memory_info().rss)
        assert set(pool.map(status, range(NUM_BODIES))) == {(400, "context_length_exceeded")}
        assert resident_bytes(process, before + MAX_KEPT_BYTES) <= before + MAX_KEPT_BYTES
