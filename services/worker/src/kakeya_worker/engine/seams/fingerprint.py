"""The fingerprint: what must be equal between two workers for the guarantee of equal bits to hold."""

import hashlib
import json
from collections.abc import Mapping


def fingerprint(parts: Mapping[str, str | int]) -> str:
    """A SHA-256 in hex over named parts, in any order.

    A backend names all that its bits depend on: the model's digest, the mode of the weights, the type of the KV
    and the version of its numerics; in float modes also itself, its version, the instruction set and the threads.
    """
    return hashlib.sha256(json.dumps(dict(parts), sort_keys=True).encode()).hexdigest()
