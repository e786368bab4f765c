"""What may come next in an answer."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Allowed:
    """What may come next.

    Attributes:
        token_ids: True where an id may; [vocab] bool. None: everywhere.
        ends_only: none but tokens that end the answer.
    """

    token_ids: NDArray[np.bool_] | None
    ends_only: bool = False


FREE = Allowed(None)
