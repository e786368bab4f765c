"""The suite's own checkpoints are worth testing with."""

import hashlib

import numpy as np
import pytest

from kakeya_worker.conformance.tools.checkpoints import MIN_DISTINCT, NUM_GREEDY, VARIANTS, Variant
from kakeya_worker.conformance.tools.reference import Reference, frequencies

_all_variants = pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)


@_all_variants
def test_a_checkpoint_is_lively(variant: Variant) -> None:
    reference = Reference(variant, sink=4, window=64)
    token = int(reference.append([1, 2, 3])[-1].argmax())
    distinct = {token}
    for _ in range(NUM_GREEDY - 1):
        token = int(reference.append([token])[0].argmax())
        distinct.add(token)
    assert len(distinct) >= MIN_DISTINCT


def test_weights_are_the_same_everywhere() -> None:
    digest = hashlib.sha256()
    for variant in VARIANTS:
        for dtype in ("float32", "bfloat16"):
            for name, tensor in variant.tensors(dtype).items():
                digest.update(name.encode() + tensor.astype("<f4").tobytes())
    assert digest.hexdigest() == "ea6519890c040a43724b2bd6dce7e8c11742a03f148403f6cb45a14780a869f1"


def test_llama3_scaling_meets_all_three_kinds_of_frequencies() -> None:
    variant = next(variant for variant in VARIANTS if variant.name == "llama")
    unscaled = 10_000.0 ** -(np.arange(0, variant.head_dim, 2) / variant.head_dim)
    ratios = frequencies(variant) / unscaled
    assert (ratios == 1).any()
    assert (ratios == 1 / 8).any()
    assert ((ratios > 1 / 8) & (ratios < 1)).any()
