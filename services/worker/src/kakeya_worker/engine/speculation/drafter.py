"""What drafts for one session, guarded: no proposer can do more than be wrong."""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile

import structlog

from kakeya_worker.engine.seams.proposer import Proposer
from kakeya_worker.engine.speculation.acceptance import REMEMBERED_PART, REMEMBERED_PART_OF_MODEL, Acceptance
from kakeya_worker.engine.speculation.choosing import Choosing
from kakeya_worker.engine.speculation.draft_model import Asked, DraftModel, ModelProposer

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
        is_of_model: it is one of a draft model, which drafts for several together: see `propose_together`.
        news: what the proposer has not been told yet; the engine's thread adds to it.

    Args:
        name: of the proposer.
        vocab_size: token ids are below it.
    """

    def __init__(self, name: str, proposer: Proposer, vocab_size: int) -> None:
        self.name = name
        self.is_immediate = proposer.is_immediate
        self.is_of_model = isinstance(proposer, ModelProposer)
        self.acceptance = Acceptance(REMEMBERED_PART_OF_MODEL if self.is_of_model else REMEMBERED_PART)
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

    def draft_seconds(self, num_sessions: int) -> float:
        """That a draft takes itself, where so many sessions are drafted for together; 0: nothing, or not known."""
        if not isinstance(self._proposer, ModelProposer):
            return 0.0
        news = self.news
        num_behind = len(news.token_ids) + (0 if news.begins_anew else self._proposer.num_behind)
        return self._proposer.draft_seconds(num_sessions, num_behind)

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
            return self.checked(self._proposer.propose(token_id, num_tokens), num_tokens)
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

    def checked(self, proposed: Iterable[int], num_tokens: int) -> tuple[int, ...]:
        """The first so many, up to the first that is no token; raises whatever those are."""
        return tuple(takewhile(self._is_token, map(operator.index, islice(proposed, num_tokens))))

    def _is_token(self, token_id: int) -> bool:
        return 0 <= token_id < self._vocab_size

    def asked(self, token_id: int, num_tokens: int, choosing: Choosing) -> Asked | None:
        """What a draft model is asked for it; None: it was given up, or is another's."""
        if not isinstance(self._proposer, ModelProposer):
            return None
        return self._proposer.asked(token_id, num_tokens, choosing)


def propose_together(model: DraftModel, wanted: Sequence[tuple[Drafter, Asked | None]]) -> list[tuple[int, ...]]:
    """What a draft model has for several sessions, as `Drafter.propose` tells it. If it fails, it does for all."""
    asked = [each for _, each in wanted if each is not None]
    try:
        drafts = iter(model.draft(asked))
        return [() if each is None else drafter.checked(next(drafts), each.num_tokens) for drafter, each in wanted]
    except Exception:  # of a backend
        for drafter, _ in wanted:
            drafter.give_up()
        return [()] * len(wanted)
