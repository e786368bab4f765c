"""The draw of a token by Gumbel-max (Gumbel 1954; see arXiv 1611.01144, section 2).

The id with the highest sum of score and Gumbel number -log(-log(u)) wins, u = Philox(seed; history index, token id).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.engine.sampling.elementary import Floats, in_blocks, log
from kakeya_worker.engine.sampling.philox import uniforms

TokenIds = NDArray[np.int64]

# A Gumbel number lies in [-3.61, 36.74] for the 52-bit u of `uniforms`: an id further than this below the best cannot
# win any draw.
GUMBEL_RANGE = 40.5
_FEW = 512  # ids, for which it takes longer to find out who can win
_TOLERANCE = 1e-9  # of a score with its Gumbel number: a hundred times what its roundings can add
_EXPONENT_BIAS, _FRACTION_BITS = 1023, 52  # of a float64


@dataclass
class Survivors:
    """The ids that may be chosen, and how they score.

    Attributes:
        all_scores: of the whole vocabulary; that of an id that is out is not looked at, or -infinity; [vocab].
        token_ids: that are left, ascending; None: none is out; [survivors].
    """

    all_scores: Floats
    token_ids: TokenIds | None = None

    @property
    def scores(self) -> Floats:
        """[survivors]."""
        return self.all_scores if self.token_ids is None else self.all_scores[self.token_ids]

    def keep(self, places: TokenIds) -> None:
        """Those at these places among the survivors, ascending, and no others."""
        self.token_ids = self.at(places)

    def at(self, places: TokenIds) -> TokenIds:
        """The ids at some places among the survivors."""
        return places if self.token_ids is None else self.token_ids[places]


Draw = Callable[[Survivors, int, int], int]
"""Takes the survivors, the seed and the history index; see `draw`."""


def draw(survivors: Survivors, seed: int, history_index: int) -> int:
    """The id of the highest score with its Gumbel number, which is computed for those alone that can be the highest."""
    scores = survivors.scores
    near = np.flatnonzero(scores >= scores.max() - GUMBEL_RANGE)
    scores, token_ids = scores[near], survivors.at(near)
    if token_ids.size == 1:
        return int(token_ids[0])
    u = in_blocks(lambda block: uniforms(seed, history_index, block), token_ids)
    if token_ids.size <= _FEW:
        return int(token_ids[np.argmax(scores + _gumbel(u))])
    most = scores + _most_gumbel(u)
    likeliest = np.argmax(most, keepdims=True)
    reached = scores[likeliest] + _gumbel(u[likeliest])
    possible = np.flatnonzero(most >= reached)
    return int(token_ids[possible[np.argmax(scores[possible] + _gumbel(u[possible]))]])


def _gumbel(u: Floats) -> Floats:
    """Gumbel numbers of uniform ones, elementwise."""
    return in_blocks(lambda block: -log(-log(block)), u)


def _most_gumbel(u: Floats) -> Floats:
    """What they are at most: -log(u) >= 1 - u >= 2^e, with the e of its float."""
    exponents = ((1.0 - u).view(np.int64) >> _FRACTION_BITS) - _EXPONENT_BIAS
    return _TOLERANCE - exponents.astype(np.float64) * math.log(2.0)
