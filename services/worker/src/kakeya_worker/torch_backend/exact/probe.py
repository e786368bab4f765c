"""A look at the machine's floats before exact mode relies on them."""

import torch

from kakeya_worker.engine.verifier import ModelRefused


def refuse_inexact_floats() -> None:
    """Raises ModelRefused where floats are not IEEE: fused operations, flushed subnormals, approximate divisions."""
    x = torch.full((64,), 1.0 + 2.0**-12)
    if bool((x * x - (1.0 + 2.0**-11) != 0.0).any()):
        raise ModelRefused("exact mode needs multiplications that are rounded before they are added to")
    subnormal = torch.full((64,), 2.0**-126) * 2.0**-10
    if bool((subnormal.view(torch.int32) != 1 << 13).any()):  # as bits: a comparison would flush its operands, too
        raise ModelRefused("exact mode needs subnormal numbers, and this process flushes them to zero")
    thirds = torch.div(torch.ones(64), torch.full((64,), 3.0))
    if bool((thirds.view(torch.int32) != 0x3EAAAAAB).any()):
        raise ModelRefused("exact mode needs correctly rounded divisions")
