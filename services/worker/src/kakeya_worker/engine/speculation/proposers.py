"""The proposers of a worker: loaded by name, and asked on a thread of their own, unless they are immediate.

So no step waits for a proposer that hangs. What one is told goes to it with the next wish, or when there is much of it.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import cache
from typing import NamedTuple

import structlog

from kakeya_shared import plugins
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.proposer import NewProposer, Proposer
from kakeya_worker.engine.speculation.drafter import Drafter, News
from kakeya_worker.host.daemon_threads import DaemonThreads

GROUP = "kakeya.proposer"
NONE = "none"
# For which a step waits for the drafts of all its sessions together; what comes later is of no use.
LATE_SECONDS = 0.002
HUNG_SECONDS = 10.0  # a machine may stand still for a while
CLOSE_SECONDS = 1.0
MUCH_TOLD = 1024  # tokens of one session

_log = structlog.get_logger()


class Wish(NamedTuple):
    """Up to `num_tokens` drafts behind a token that was chosen."""

    drafter: Drafter
    token_id: int
    num_tokens: int


@cache
def installed() -> tuple[str, ...]:
    """Their names, sorted. Callers name what they like, and to look for it takes milliseconds."""
    return tuple(plugins.names(GROUP))


@cache
def load(name: str) -> NewProposer:
    """Raises PluginError: none of this name is installed, or it cannot be imported."""
    new_proposer: NewProposer = plugins.load(GROUP, name, install="pip install kakeya-worker")
    return new_proposer


class Proposers:
    """Used by the engine's thread.

    Args:
        default: the proposer of sessions that name none.
        find: a proposer by its name; raises PluginError.
        late_seconds: see `LATE_SECONDS`.
        hung_seconds: after which one that has not come back is given up, and all others with it.

    Raises:
        PluginError: the default cannot be loaded.
    """

    def __init__(
        self,
        default: str = NONE,
        find: Callable[[str], NewProposer] = load,
        *,
        late_seconds: float = LATE_SECONDS,
        hung_seconds: float = HUNG_SECONDS,
    ) -> None:
        find(default)
        self.default = default
        self._find = find
        self._names = {default, *installed()}
        self._late_seconds = late_seconds
        self._hung_seconds = hung_seconds
        self._thread = DaemonThreads(1, "proposers")
        self._asked: Future[list[tuple[int, ...]]] | None = None  # the latest wishes, until they are answered
        self._asked_at = 0.0
        self._are_given_up = False

    def drafter(
        self, geometry: LaneGeometry, vocab_size: int, token_ids: Sequence[int], name: str = ""
    ) -> Drafter | None:
        """Of a session whose lane keeps these tokens; None: nothing is ever drafted for it.

        Args:
            name: of its proposer; empty: the default. One that cannot be made drafts nothing.
        """
        name = name or self.default
        proposer = self._made(name, geometry, vocab_size)
        if proposer is None or not proposer.max_tokens:
            return None
        drafter = Drafter(name, proposer, vocab_size)
        self.restart(drafter, token_ids)
        return drafter

    def memory_bytes(self, geometry: LaneGeometry, vocab_size: int) -> int:
        """That the default one holds of a session."""
        proposer = self._made(self.default, geometry, vocab_size)
        return 0 if proposer is None else proposer.memory_bytes

    def restart(self, drafter: Drafter, token_ids: Sequence[int]) -> None:
        """See `Proposer.restart`."""
        drafter.news = News(begins_anew=True)
        self.extend(drafter, token_ids)

    def extend(self, drafter: Drafter, token_ids: Sequence[int]) -> None:
        """See `Proposer.extend`."""
        drafter.news.token_ids.extend(token_ids)
        if len(drafter.news.token_ids) >= MUCH_TOLD:
            news = drafter.take_news()
            if drafter.is_immediate:
                drafter.hear(news)
            elif not self._are_given_up:
                self._thread.submit(lambda: drafter.hear(news))

    def propose(self, wishes: Sequence[Wish]) -> list[tuple[int, ...]]:
        """Drafts for each wish; none where they do not come in time."""
        from_thread = iter(self._propose_beside([wish for wish in wishes if not wish.drafter.is_immediate]))
        return [
            _answer(wish, wish.drafter.take_news()) if wish.drafter.is_immediate else next(from_thread)
            for wish in wishes
        ]

    def _propose_beside(self, wishes: Sequence[Wish]) -> list[tuple[int, ...]]:
        """On the thread."""
        if not wishes or not self._can_be_asked():
            return [()] * len(wishes)
        self._asked_at = time.monotonic()
        told = [(wish, wish.drafter.take_news()) for wish in wishes]
        self._asked = self._thread.submit(lambda: [_answer(*each) for each in told])
        try:
            drafts = self._asked.result(self._late_seconds)
        except TimeoutError:
            return [()] * len(wishes)
        return drafts

    def close(self, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Ends the thread, unless it hangs."""
        self._thread.close(timeout_seconds)

    def _made(self, name: str, geometry: LaneGeometry, vocab_size: int) -> Proposer | None:
        if name not in self._names:
            _log.info("a session goes on without drafts: its proposer is not installed here", proposer=name)
            return None
        try:
            return self._find(name)(geometry, vocab_size)
        except Exception:  # of a plugin: the session opens all the same
            _log.exception("a proposer could not be made", proposer=name)
            return None

    def _can_be_asked(self) -> bool:
        """Whether all that came before is answered."""
        if self._are_given_up or self._asked is None or self._asked.done():
            return not self._are_given_up
        if time.monotonic() - self._asked_at > self._hung_seconds:
            _log.error("a proposer hangs; nothing is drafted by this worker any more")
            self._are_given_up = True
            self._thread.close(0.0)
        return False


def _answer(wish: Wish, news: News) -> tuple[int, ...]:
    """Behind what the proposer is told first."""
    wish.drafter.hear(news)
    return wish.drafter.propose(wish.token_id, wish.num_tokens)
