"""Exact mode: weights in whole numbers, integer products, and floats in one fixed order of IEEE operations.

docs/numerics.md specifies every operation; this package is that specification in plain torch, and the oracle for
any faster kernel. Rules of the house:

- integer products are exact, so their order is free;
- every float operation is one IEEE add, subtract, multiply or divide of float32 in a fixed tree, never fused;
- no operator whose result depends on the shape of the batch, the threads or the instruction set: no float matrix
  product, no `sum`, no `softmax`, no `exp`, no float32 `sqrt`, and division only of tensor by tensor.
"""

NUMERICS_VERSION = 3
"""Rises when any bit of any result may change; part of the fingerprint."""
