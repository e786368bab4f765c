"""How many drafts each session of a step should have: as long as one more brings more than it costs.

A step brings each generating session one token; a draft that is right brings one more. It is worth its price where that
is likelier than what the step brings anyway in the time that the draft adds. So the step brings the most tokens a
second. Who shares the step and gains less from drafts, here or of late, waits hardly longer for that.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

MAX_SLOWDOWN = 1.05  # of any session in the step, in expected tokens a second
_LEAST_PART = 1e-6  # of a step, that a draft adds at the least
_UNKNOWN_PART = 1 / 16  # of a step, that a draft adds where nothing was measured


class Candidate(NamedTuple):
    """A generating session.

    Attributes:
        share: of its drafts that are right, each behind right ones.
        most: drafts that it can have; 0: it has no part in this, but it waits for those of others.
        seconds: that one adds to the step.
        tokens_a_step: that it has had of late.
    """

    share: float
    most: int
    seconds: float
    tokens_a_step: float = 1.0


def depths(candidates: Sequence[Candidate], step_seconds: float, num_tokens: int) -> list[int]:
    """The number of drafts of each.

    Args:
        candidates: all that generate in the step.
        step_seconds: of the step without drafts; 0: not known.
        num_tokens: that the step still has room for.
    """
    if step_seconds <= 0.0:
        candidates, step_seconds = [each._replace(seconds=_UNKNOWN_PART) for each in candidates], 1.0
    chosen, added = _worthwhile(candidates, step_seconds, num_tokens)
    gains = [_gain(each, depth) for each, depth in zip(candidates, chosen, strict=True)]
    seconds = step_seconds + sum(each.seconds * depth for each, depth in zip(candidates, chosen, strict=True))
    while added and seconds > MAX_SLOWDOWN * step_seconds * min(gains):
        index = added.pop()  # the one that is worth least
        chosen[index] -= 1
        seconds -= candidates[index].seconds
        gains[index] = _gain(candidates[index], chosen[index])
    return chosen


def _worthwhile(candidates: Sequence[Candidate], step_seconds: float, num_tokens: int) -> tuple[list[int], list[int]]:
    """With which the step brings the most tokens a second; and whose they are, those first that are worth most."""
    chosen, added = [0] * len(candidates), list[int]()
    tokens, seconds = float(len(candidates)), step_seconds
    least_seconds = step_seconds * _LEAST_PART
    # Of each its next draft: what that is worth in tokens a second, negative, and in tokens.
    worths = [
        (-each.share / max(each.seconds, least_seconds), each.share, index)
        for index, each in enumerate(candidates)
        if each.most
    ]
    heapify(worths)
    while worths and len(added) < num_tokens:
        worth, gain, index = worths[0]
        if -worth * seconds <= tokens:
            break
        each = candidates[index]
        tokens += gain
        seconds += each.seconds
        chosen[index] += 1
        added.append(index)
        if chosen[index] < each.most:
            heapreplace(worths, (worth * each.share, gain * each.share, index))
        else:
            heappop(worths)
    return chosen, added


def _gain(candidate: Candidate, depth: int) -> float:
    """Tokens a step, expected of this one, or had of late if that is more."""
    share = candidate.share
    expected = 1.0 + (share * (1.0 - share**depth) / (1.0 - share) if share < 1.0 else depth)
    return max(expected, candidate.tokens_a_step)
