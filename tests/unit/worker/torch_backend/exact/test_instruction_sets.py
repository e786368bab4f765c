"""Exact mode on processors without products of int8, and with such that saturate: it multiplies otherwise."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

_ASK = """
from kakeya_worker.torch_backend.exact.integer_product import is_exact, native
from kakeya_worker.torch_backend.mode import choose_mode
print(is_exact(native), choose_mode("int8", "auto", "float32").product.__name__)
"""


def _answer(environment: dict[str, str]) -> str:
    """Whether torch's own product is exact in a process of this environment, and which one is chosen."""
    output = subprocess.run(
        [sys.executable, "-c", _ASK], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    ).stdout
    return output.splitlines()[-1]  # whatever is logged comes before


def _has_vnni() -> bool:
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.is_file() and "avx512_vnni" in cpuinfo.read_text()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="oneDNN's instruction sets are those of x86-64")
def test_products_that_saturate_or_loop_are_not_used() -> None:
    """Without VNNI torch never asks oneDNN, and is exact and slow."""
    assert _answer({"ONEDNN_MAX_CPU_ISA": "AVX2"}) == f"{not _has_vnni()} by_floats"


@pytest.mark.skipif(not _has_vnni(), reason="no AVX-512 VNNI here")
def test_products_that_do_not_saturate_are_used() -> None:
    assert _answer({}) == "True native"
