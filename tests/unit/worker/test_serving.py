"""What the worker's health says while it loads."""

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from torch import Tensor

from kakeya_shared.health_command import check
from kakeya_worker import program
from kakeya_worker.settings import WorkerSettings
from kakeya_worker.torch_backend.exact import numerics
from kakeya_worker.torch_backend.exact.quantization import QuantizedMatrix, quantize_matrix, quantize_table


def _free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


async def _becomes(address: str, health: str) -> None:
    async with asyncio.timeout(60):
        while await asyncio.to_thread(check, address) != health:
            await asyncio.sleep(0.02)


async def test_it_serves_once_the_weights_are_converted(
    random_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on, num_converted = threading.Event(), 0

    def held(quantize: Callable[..., QuantizedMatrix], weights: Tensor | Sequence[Tensor]) -> QuantizedMatrix:
        nonlocal num_converted
        may_go_on.wait(60)
        num_converted += 1
        return quantize(weights)

    for quantize in (quantize_matrix, quantize_table):
        monkeypatch.setattr(numerics, quantize.__name__, partial(held, quantize))
    address, stop = _free_address(), asyncio.Event()
    flags = ["--bind", address, "--weights", "int8", "--window", "64", "--lanes", "1", "--threads", "1"]
    settings = WorkerSettings.parse(["--model", str(random_checkpoint), "--cache-dir", str(tmp_path), *flags])
    serving = asyncio.create_task(program.serve(settings, stop))
    try:
        await _becomes(address, "NOT_SERVING")
        await asyncio.sleep(0.3)
        assert await asyncio.to_thread(check, address) == "NOT_SERVING", "as long as it takes"
        assert num_converted == 0
        may_go_on.set()
        await _becomes(address, "SERVING")
        assert num_converted == 1 + 4 * 4  # the table; q, k, v and o, gate and up, and down of four layers
    finally:
        may_go_on.set()
        stop.set()
        await serving
