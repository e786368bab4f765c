"""A conversation that was held in one session, given to another."""

from collections.abc import Sequence

from kakeya import AsyncSession

LONGEST_APPEND = 65_536
"""What a router takes in one append unless it is told otherwise."""


async def replay(session: AsyncSession, token_ids: Sequence[int], *, timeout_seconds: float) -> None:
    """Appends all of them, in one append where they fit. Raises KakeyaError."""
    for place in range(0, len(token_ids), LONGEST_APPEND):
        await session.append(list(token_ids[place : place + LONGEST_APPEND]), timeout_seconds=timeout_seconds)
