"""Which distances are asked for: even on a logarithmic scale, beside every window's edge, to beyond twice S + W."""

import math
from collections.abc import Iterable

from kakeya_worker.quality.script import ANSWER_TOKENS

NEAREST = 16  # tokens; hardly a question is shorter
PER_OCTAVE = 2
SPARE = 1.2  # a distance of the scale keeps off the others by this factor, so that fillers fit between them
BEYOND = 2.1  # times S + W: where whatever is forgotten is forgotten for good
_LEFT = 48  # tokens; a telling is shorter, so that so far beyond W none is in sight


def default_distances(capacity: int, windows: Iterable[int]) -> tuple[int, ...]:
    """From NEAREST to BEYOND times the capacity, that one included; and around each window's edge.

    That is the last distance in sight, W - ANSWER_TOKENS, where it is one, and one at which all of it is gone.
    """
    furthest = math.floor(BEYOND * capacity)
    edges = {edge for window in windows for edge in (window - ANSWER_TOKENS, window + _LEFT)}
    fixed = {furthest, *(edge for edge in edges if NEAREST <= edge < furthest)}
    num_steps = max(0, math.ceil(PER_OCTAVE * math.log2(furthest / NEAREST)))
    spaced = (round(NEAREST * 2 ** (step / PER_OCTAVE)) for step in range(num_steps))
    return tuple(sorted(fixed | {distance for distance in spaced if not _is_near(distance, fixed)}))


def _is_near(distance: int, others: Iterable[int]) -> bool:
    return any(1 / SPARE < distance / other < SPARE for other in others)
