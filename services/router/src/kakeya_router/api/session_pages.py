"""The sessions of all pools, a page at a time, without holding any of them still."""

import re
from collections.abc import Sequence

from kakeya_router.contract import validation
from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.sessions.session_lists import SessionLists
from kakeya_router.store.sessions.session_store import Glance

# "POOL.CURSOR": where the next page goes on; names of pools have no dot, cursors are Redis's 64-bit numbers.
_TOKEN = re.compile(r"(?P<pool>[a-z0-9][a-z0-9-]{0,62})\.(?P<cursor>[0-9]{1,19})")

_DEFAULT_SIZE = 100
_MAX_SIZE = 1000


class SessionPages:
    def __init__(self, sessions: SessionLists, workers: WorkerStore) -> None:
        self._sessions = sessions
        self._workers = workers

    async def page(self, pool: str, token: str, size: int) -> tuple[list[Glance], str]:
        """One look at one pool, and the token of the next; "": this was the last.

        Args:
            pool: the only one; empty: all.
            token: the previous page's; empty: begin.
            size: about how many sessions to look at; 0: as many as are good for a page.

        Raises:
            InvalidField: nobody gave that token, or too many are wanted.
            StoreUnavailable
        """
        if size > _MAX_SIZE:
            raise validation.invalid("page_size", f"must be at most {_MAX_SIZE}")
        at, cursor = _place(token)
        # A pool may have gone since the last page; then the next one is begun.
        pools = [name for name in await self._workers.pools() if name >= at and pool in ("", name)]
        if not pools:
            return [], ""
        page, following = await self._sessions.page(pools[0], cursor if pools[0] == at else 0, size or _DEFAULT_SIZE)
        return page, _next_token(pools, following)


def _place(token: str) -> tuple[str, int]:
    if not token:
        return "", 0
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise validation.invalid("page_token", "is not one that this service gave")
    return match["pool"], int(match["cursor"])


def _next_token(pools: Sequence[str], cursor: int) -> str:
    if cursor:
        return f"{pools[0]}.{cursor}"
    return f"{pools[1]}.0" if len(pools) > 1 else ""
