"""exp and log: how far they are from the truth, their edges, and that their bits are the same everywhere."""

import os
import subprocess
import sys
from decimal import Context, Decimal, localcontext

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from kakeya_worker.engine.sampling.elementary import exp, in_blocks, log

PRECISE = Context(prec=60, Emin=-9999)


def _error_ulps(y: float, truth: Decimal) -> float:
    with localcontext(PRECISE):
        return float(abs(truth - Decimal(y)) / Decimal(np.spacing(abs(y))))


@given(st.floats(-745.0, 709.7))
@example(-708.4)
@example(2.0**-1074)
def test_exp_errs_by_less_than_a_unit_in_the_last_place(x: float) -> None:
    with localcontext(PRECISE):
        truth = Decimal(x).exp()
    assert _error_ulps(float(exp(np.array([x]))[0]), truth) < 1.0


@given(st.floats(5e-324, sys.float_info.max))
@example(1.0 + 2.0**-52)
@example(1.0 - 2.0**-53)
def test_log_errs_by_less_than_a_unit_in_the_last_place(x: float) -> None:
    with localcontext(PRECISE):
        truth = Decimal(x).ln()
    assert _error_ulps(float(log(np.array([x]))[0]), truth) < 1.0


def test_edges() -> None:
    infinity = np.inf
    assert exp(np.array([0.0, -0.0, -infinity, -746.0, infinity, 710.0])).tolist() == [1, 1, 0, 0, infinity, infinity]
    assert exp(np.array([-745.0])).tolist() == [5e-324]  # subnormal
    assert log(np.array([1.0, 0.0, infinity])).tolist() == [0, -infinity, infinity]
    assert log(np.array([5e-324])).tolist() == [-744.4400719213812]


def test_blocks_change_nothing() -> None:
    x = -np.linspace(0.0, 50.0, 20_000)
    sizes: list[int] = []

    def observed(block: np.ndarray) -> np.ndarray:
        sizes.append(block.size)
        return exp(block)

    assert in_blocks(observed, x).tobytes() == exp(x).tobytes()
    assert len(sizes) > 1
    assert sum(sizes) == x.size


# The inputs are made without functions that differ from one instruction set to another.
DIGEST = """
import hashlib
import numpy as np
from kakeya_worker.engine.sampling.elementary import exp, log
from kakeya_worker.engine.sampling.philox import uniforms
from kakeya_worker.engine.sampling.sampling import token_detail
u = uniforms(1, 2, np.arange(30_011))
x = 700.0 * u * u * u
detail = token_detail((16.0 * uniforms(3, 4, np.arange(5000))).astype(np.float32), 7, 20)
results = [x.tobytes(), exp(-x).tobytes(), exp(x).tobytes(), log(x).tobytes(), repr(detail).encode()]
print(*(hashlib.sha256(result).hexdigest() for result in results))
"""


def _digest(**environment: str) -> str:
    command = [sys.executable, "-c", DIGEST]
    ran = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    return ran.stdout


def test_bits_do_not_depend_on_the_instruction_set() -> None:
    levels = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])  # beyond numpy's baseline
    assert _digest() == _digest(NPY_DISABLE_CPU_FEATURES=" ".join(levels))
