"""The proposers of a worker: loaded by name, and asked on a thread of their own.

So no step waits for a proposer that hangs. To wake the thread takes longer than most proposers do: what they are told
goes to it with the next wishes, or when there is much of it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import structlog

from kakeya_shared import plugins
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.proposer import NewProposer, Proposer
from kakeya_worker.engine.speculation.drafter import Drafter
from kakeya_worker.host.daemon_threads import DaemonThreads

GROUP = "kakeya.proposer"
NONE = "none"
# For which a step waits for the drafts of all its sessions together; what comes later is of no use.
LATE_SECONDS = 0.002
HUNG_SECONDS = 10.0  # a machine may stand still for a while
CLOSE_SECONDS = 1.0
MUCH_TOLD = 4096  # tokens

_log = structlog.get_logger()


class Wish(NamedTuple):
    """Up to `num_tokens` drafts behind a token that was chosen."""

    drafter: Drafter
    token_id: int
    num_tokens: int


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
        self._late_seconds = late_seconds
        self._hung_seconds = hung_seconds
        self._thread = DaemonThreads(1, "proposers")
        self._asked: Future[list[tuple[int, ...]]] | None = None  # the latest wishes, until they are answered
        self._asked_at = 0.0
        self._are_given_up = False
        self._news: dict[Drafter, _News] = {}
        self._num_told = 0  # tokens in it

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

    def restart(self, drafter: Drafter, token_ids: Sequence[int]) -> None:
        """See `Proposer.restart`."""
        if token_ids:
            self._news.pop(drafter, None)
        self._tell(drafter, token_ids, is_anew=True)

    def extend(self, drafter: Drafter, token_ids: Sequence[int]) -> None:
        """See `Proposer.extend`."""
        self._tell(drafter, token_ids)

    def propose(self, wishes: Sequence[Wish]) -> list[tuple[int, ...]]:
        """Drafts for each wish; none where they do not come in time."""
        if not wishes or not self._can_be_asked():
            return [()] * len(wishes)
        self._asked_at = time.monotonic()
        news = self._take_news()
        self._asked = self._thread.submit(lambda: _answered(news, wishes))
        try:
            drafts = self._asked.result(self._late_seconds)
        except TimeoutError:
            return [()] * len(wishes)
        return drafts

    def close(self, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Ends the thread, unless it hangs."""
        self._thread.close(timeout_seconds)

    def _made(self, name: str, geometry: LaneGeometry, vocab_size: int) -> Proposer | None:
        try:
            return self._find(name)(geometry, vocab_size)
        except Exception:  # of a plugin: the session opens all the same
            _log.exception("a proposer could not be made", proposer=name)
            return None

    def _tell(self, drafter: Drafter, token_ids: Sequence[int], *, is_anew: bool = False) -> None:
        if not token_ids or not drafter.max_tokens or self._are_given_up:
            return
        if (news := self._news.get(drafter)) is None:
            news = self._news[drafter] = _News(is_anew)
        news.token_ids.extend(token_ids)
        self._num_told += len(token_ids)
        if self._num_told >= MUCH_TOLD:
            self._send_news()

    def _send_news(self) -> None:
        if news := self._take_news():
            self._thread.submit(lambda: _answered(news, ()))

    def _take_news(self) -> "dict[Drafter, _News]":
        news, self._news, self._num_told = self._news, {}, 0
        return news

    def _can_be_asked(self) -> bool:
        """Whether all that came before is answered."""
        if self._are_given_up or self._asked is None or self._asked.done():
            return not self._are_given_up
        if time.monotonic() - self._asked_at > self._hung_seconds:
            _log.error("a proposer hangs; nothing is drafted by this worker any more")
            self._are_given_up = True
            self._thread.close(0.0)
        return False


@dataclass
class _News:
    """What a proposer has not been told yet.

    Attributes:
        begins_anew: with it the proposer forgets all else.
    """

    begins_anew: bool
    token_ids: list[int] = field(default_factory=list)


def _answered(news: Mapping[Drafter, _News], wishes: Sequence[Wish]) -> list[tuple[int, ...]]:
    """On the thread, which listens first."""
    for drafter, its_news in news.items():
        if its_news.begins_anew:
            drafter.restart(its_news.token_ids)
        else:
            drafter.extend(its_news.token_ids)
    return [each.drafter.propose(each.token_id, each.num_tokens) for each in wishes]
