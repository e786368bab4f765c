"""What drafts for one session, guarded: no proposer can do more than be wrong."""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import structlog

from kakeya_worker.engine.seams.proposer import Proposer
from kakeya_worker.engine.speculation.acceptance import Acceptance

_log = structlog.get_logger()


@dataclass
class News:
    """What joined a history.

    Attributes:
        begins_anew: a proposer forgets all else with it.
    """

    begins_anew: bool = False
    token_ids: list[int] = field(default_factory=list)


class Drafter:
    """A session's proposer, and how often that was right.

    `restart`, `extend` and `propose` are for the thread that the proposer is used on.

    Attributes:
        is_immediate: see `Proposer`.
        news: what the proposer has not been told yet; the engine's thread adds to it.

    Args:
        name: of the proposer.
        vocab_size: token ids are below it.
    """

    def __init__(self, name: str, proposer: Proposer, vocab_size: int) -> None:
        self.name = name
        self.acceptance = Acceptance()
        self.is_immediate = proposer.is_immediate
        self.news = News()
        self._proposer: Proposer | None = proposer  # None: it was given up
        self._vocab_size = vocab_size

    @property
    def max_tokens(self) -> int:
        """Of one proposal; 0: it need not be asked or told anything."""
        return 0 if self._proposer is None else self._proposer.max_tokens

    @property
    def memory_bytes(self) -> int:
        return 0 if self._proposer is None else self._proposer.memory_bytes

    def restart(self, token_ids: Sequence[int]) -> None:
        """See `Proposer.restart`."""
        if self._proposer is not None:
            try:
                self._proposer.restart(token_ids)
            except Exception:  # of a plugin
                self.give_up()

    def extend(self, token_ids: Sequence[int]) -> None:
        """See `Proposer.extend`."""
        if self._proposer is not None:
            try:
                self._proposer.extend(token_ids)
            except Exception:  # of a plugin
                self.give_up()

    def propose(self, token_id: int, num_tokens: int) -> tuple[int, ...]:
        """Up to so many ids of the vocabulary, whatever the proposer returns."""
        if self._proposer is None:
            return ()
        try:
            return tuple(self._checked(islice(self._proposer.propose(token_id, num_tokens), num_tokens)))
        except Exception:  # of a plugin
            self.give_up()
            return ()

    def hear(self, news: News) -> None:
        """Tells the proposer."""
        if news.begins_anew:
            self.restart(news.token_ids)
        elif news.token_ids:
            self.extend(news.token_ids)

    def take_news(self) -> News:
        """Which are new no more."""
        news, self.news = self.news, News()
        return news

    def give_up(self) -> None:
        """Inside an except clause: the session goes on without drafts."""
        _log.exception("a proposer failed, and drafts no more for its session", proposer=self.name)
        self._proposer = None

    def _checked(self, proposed: Iterable[int]) -> Iterable[int]:
        """Those before the first that is no token."""
        for each in proposed:
            token_id = operator.index(each)
            if not 0 <= token_id < self._vocab_size:
                return
            yield token_id
