"""Exact mode again, from its prose (docs/numerics.md), in numpy and without a line of any backend.

One token at a time, all keys ever seen in one array by history index, the visible ones picked by the law's own
definition: no chunk, no batch, no ring, no slot. What a backend computes in exact mode equals this to the bit.
"""

from kakeya_worker.conformance.exact_reference.model import ExactReference
from kakeya_worker.conformance.exact_reference.session import ReferenceSession

__all__ = ["ExactReference", "ReferenceSession"]
