"""A look at the machine's floats before exact mode relies on them."""

import torch


def problem_with_floats() -> str | None:
    """What keeps floats from being IEEE: fused operations, flushed subnormals, approximate divisions; None: nothing."""
    x = torch.full((64,), 1.0 + 2.0**-12)
    if bool((x * x - (1.0 + 2.0**-11) != 0.0).any()):
        return "multiplications are not rounded before they are added to"
    subnormal = torch.full((64,), 2.0**-126) * 2.0**-10
    if bool((subnormal.view(torch.int32) != 1 << 13).any()):  # as bits: a comparison would flush its operands, too
        return "this process flushes subnormal numbers to zero"
    thirds = torch.div(torch.ones(64), torch.full((64,), 3.0))
    if bool((thirds.view(torch.int32) != 0x3EAAAAAB).any()):
        return "divisions are not correctly rounded"
    return None
