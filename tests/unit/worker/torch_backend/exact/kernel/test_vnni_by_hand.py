"""The kernel's AVX-512 VNNI variant on processors without it: its own sources, with the instructions spelled out."""

import ctypes
import platform
from pathlib import Path

import pytest

from kakeya_worker.torch_backend.exact.kernel import build, interface
from kakeya_worker.torch_backend.exact.kernel.build import Unit
from kakeya_worker.torch_backend.exact.kernel.library import Kernel, variants
from kakeya_worker.torch_backend.exact.kernel.probe import check_kernel

HEADER = Path(__file__).with_name("vnni_by_hand.h")

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the instructions are x86-64's"),
    pytest.mark.skipif("avx2" not in variants(), reason="no C++ compiler, or no AVX2"),
    pytest.mark.skipif("avx512vnni" in variants(), reason="this processor has them, and all tests of the kernel run"),
]


def test_it_computes_the_bits_of_the_eager_form(tmp_path: Path) -> None:
    flags = ("-O1", "-mavx2", "-Wno-psabi", "-include", str(HEADER))
    units = [
        Unit(source.stem, source, (*flags, "-DKAKEYA_VARIANT=by_hand", "-DKAKEYA_EACH_VARIANT(x)=x(by_hand)"))
        for source in sorted(build.SOURCES.glob("*.cpp"))
    ]
    compiler = build.find_compiler()
    objects = [build._compile_unit(compiler, unit, tmp_path) for unit in units]
    build._run(compiler, *build._LINK_FLAGS, *objects, "-o", str(tmp_path / "kernel.so"))
    check_kernel(Kernel(interface.declare(ctypes.CDLL(str(tmp_path / "kernel.so"))), "by_hand"), with_blocks=True)
