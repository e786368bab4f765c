"""What K and V in int8 gain beside the same weights with bfloat16 ones and beside other engines, and its bounds."""

from collections.abc import Mapping
from typing import NamedTuple

from kakeya_bench.engine.contestants import INT8, LLAMA, LLAMA_Q8_KV, TRANSFORMERS
from kakeya_bench.statistics.intervals import Interval

RIVALS = {INT8: "bfloat16_kv", TRANSFORMERS: "transformers", LLAMA: "llama", LLAMA_Q8_KV: "llama_q8_kv"}
"""Beside whom, and how gates name them."""
_BEST_KERNEL = "avx512vnni"


class Bound(NamedTuple):
    """How many times as long a rival takes, at least.

    Attributes:
        otherwise: with other kernels than the one with AVX-512 VNNI; None: the same.
    """

    case: str
    rival: str
    least: float
    otherwise: float | None = None

    @property
    def gate(self) -> str:
        return gate(self.case, self.rival)


_AS_BEFORE = ("decode_1", "decode_2", "decode_4", "decode_8", "prefill_64", "prefill_256", "prefill_512")
BOUNDS = (
    Bound("prefill_512_w2048", TRANSFORMERS, 1.4, 1.1),
    Bound("prefill_512_w2048", LLAMA, 2.1, 1.5),
    Bound("decode_8_w2048", LLAMA, 3.8),
    Bound("decode_1_w2048", LLAMA, 1.7),
    Bound("prefill_512_w16384", INT8, 2.0),
    *(Bound(case, INT8, 0.98) for case in _AS_BEFORE),
)


def gate(case: str, rival: str) -> str:
    """Its name in reports."""
    return f"int8_kv_{case}_over_{RIVALS[rival]}"


def bounds(kernel: str | None) -> dict[str, float]:
    """By gate, for a variant of Kakeya's kernel; None: for the eager form."""
    is_best = kernel == _BEST_KERNEL
    return {each.gate: each.least if is_best or each.otherwise is None else each.otherwise for each in BOUNDS}


def of_case(found: Mapping[str, Interval], case: str) -> dict[str, Interval]:
    """The ratios of a case by rival."""
    return {rival: found[gate(case, rival)] for rival in RIVALS if gate(case, rival) in found}
