"""What the process of a shim is: small, and without a library that runs models; how soon it is ready: bench-request."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.ports import free_port
from tests.unit.sdk import scripted_runtime
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, model

NANO = "kakeya-nano"
PROGRAM = """
import atexit, sys
atexit.register(lambda: print(*sorted(sys.modules), sep="\\n"))
from kakeya_http_shim.command import main
sys.exit(main(sys.argv[1:]))
"""
"""A shim that says at its end which modules were loaded."""
MAX_PSS_BYTES = 90 << 20

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="Linux tells of a process by files"
)


@dataclass(frozen=True)
class _Process:
    pid: int
    http: httpx.AsyncClient
    ended: "asyncio.Future[bytes]"


@asynccontextmanager
async def _shim(runtime: ScriptedRuntime) -> AsyncIterator[_Process]:
    """Yields once it is ready."""
    port = free_port()
    flags = ("--router", runtime.address, "--bind", f"127.0.0.1:{port}", "--tokenizer", f"{NANO}={NANO}")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, *flags, stdout=asyncio.subprocess.PIPE
    )
    said = asyncio.ensure_future(process.communicate())
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            async with asyncio.timeout(60):
                while not await _is_ready(http):
                    assert process.returncode is None
                    await asyncio.sleep(0.01)
            yield _Process(process.pid, http, asyncio.ensure_future(_output(said)))
    finally:
        if process.returncode is None:
            process.kill()
        await said


async def _output(said: "asyncio.Future[tuple[bytes, bytes]]") -> bytes:
    return (await asyncio.shield(said))[0]


async def _is_ready(http: httpx.AsyncClient) -> bool:
    try:
        return (await http.get("/readyz")).status_code == 200
    except httpx.TransportError:
        return False


def _pss_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    (kibibytes,) = [line.split()[1] for line in lines if line.startswith("Pss:")]
    return int(kibibytes) << 10


async def test_a_shim_is_small_and_loads_nothing_that_runs_models(
    runtime: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripted_runtime, "VOCAB_SIZE", 2048)
    runtime.models[:] = [model(NANO, is_default=True)]
    runtime.models[0].vocab_size = 2048
    async with _shim(runtime) as shim:
        assert _pss_bytes(shim.pid) <= MAX_PSS_BYTES
        runtime.answers.append([72, 105, 2043])
        response = await shim.http.post(
            "/v1/chat/completions", json={"messages": [{"role": "user", "content": "<|im_end|>"}]}
        )
        assert response.status_code == 200, response.text
        assert _pss_bytes(shim.pid) <= MAX_PSS_BYTES
        os.kill(shim.pid, signal.SIGTERM)
        loaded = {name.partition(".")[0] for name in (await shim.ended).decode().splitlines()}
    assert {"tokenizers", "jinja2", "kakeya_http_shim"} <= loaded
    assert not loaded & {"torch", "transformers", "numpy", "huggingface_hub", "safetensors", "redis", "requests"}
