"""Scripts that do one thing, as their first outcome says, or leave it."""

from enum import StrEnum
from typing import Literal

from kakeya_router.store.outcomes import Alternative, BeginClose, MoveSession, OfferLane, ParkSession

OfOneThing = (
    Alternative
    | Literal[BeginClose.CLAIMED, BeginClose.MISSING, BeginClose.KEPT]
    | Literal[MoveSession.MOVED, MoveSession.FULL, MoveSession.AWAY, MoveSession.CHANGED]
    | Literal[OfferLane.OFFERED, OfferLane.BUSY, OfferLane.CHANGED]
    | Literal[ParkSession.PARKED, ParkSession.NO_LANE, ParkSession.LEFT, ParkSession.UNRECOVERABLE, ParkSession.KEPT]
    | Literal[ParkSession.CHANGED, ParkSession.FAILED, ParkSession.MISSING, ParkSession.LOST, ParkSession.BUSY]
)
"""All their outcomes: with another one in a header nothing that asks `is_done` about it passes the check of types."""


def is_done(outcome: OfOneThing) -> bool:
    """Whether the script has done it. For callers to whom all other outcomes are the same."""
    outcomes: type[StrEnum] = type(outcome)
    return outcome is next(iter(outcomes))
