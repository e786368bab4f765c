"""The proposers of a worker: loaded by name, and asked on a thread of their own, unless they are immediate.

So no step waits for a proposer that hangs. What one is told goes to it with the next wish, or when there is much of it.
The draft model has another thread, and is asked for all its sessions together.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

import structlog

from kakeya_shared import plugins
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.proposer import NewProposer, Proposer
from kakeya_worker.engine.speculation.aside import HUNG_SECONDS, Aside
from kakeya_worker.engine.speculation.choosing import GREEDY, Choosing
from kakeya_worker.engine.speculation.draft_model import DraftModel
from kakeya_worker.engine.speculation.drafter import Drafter, News, propose_together
from kakeya_worker.engine.speculation.names import DRAFT_MODEL, NONE

GROUP = "kakeya.proposer"
# For which a step waits for the drafts of all its sessions together; what comes later is of no use.
LATE_SECONDS = 0.002
CLOSE_SECONDS = 1.0
MUCH_TOLD = 1024  # tokens of one session

_log = structlog.get_logger()


class Wish(NamedTuple):
    """Up to `num_tokens` drafts behind a token that was chosen; `choosing` is for a draft model."""

    drafter: Drafter
    token_id: int
    num_tokens: int
    choosing: Choosing = GREEDY


_Told = Sequence[tuple[Wish, News]]
"""Wishes, each behind what its proposer is told first."""


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
        draft_model: what drafts for sessions that name `DRAFT_MODEL`; None: there is none.
        late_seconds: for which a step waits; None: `LATE_SECONDS`, or for the draft model what that says.
        hung_seconds: after which one that has not come back is given up, and all others with it.

    Attributes:
        names: of those that a session can have here.

    Raises:
        PluginError: the default cannot be loaded.
    """

    def __init__(
        self,
        default: str = NONE,
        find: Callable[[str], NewProposer] = load,
        draft_model: DraftModel | None = None,
        *,
        late_seconds: float | None = None,
        hung_seconds: float = HUNG_SECONDS,
    ) -> None:
        of_model = {DRAFT_MODEL} if draft_model is not None else set[str]()
        if default not in of_model:
            find(default)
        self.default = default
        self.draft_model = draft_model
        self.names = frozenset({default, *installed(), *of_model})
        self._find = find
        self._late_seconds = late_seconds
        self._plugins = Aside("proposers", hung_seconds)
        self._model = Aside(DRAFT_MODEL, hung_seconds)

    @property
    def may_draft(self) -> bool:
        """Sessions that ask for nothing are drafted for, or there is a draft model for those that ask."""
        return self.default != NONE or self.draft_model is not None

    def fit_costs(self) -> None:
        """Measures what the draft model takes here, if there is one."""
        if self.draft_model is not None:
            self.draft_model.fit_costs()

    def drafter(
        self, geometry: LaneGeometry, vocab_size: int, token_ids: Sequence[int], name: str = "", lane: int = 0
    ) -> Drafter | None:
        """Of a session whose lane keeps these tokens; None: nothing is ever drafted for it.

        Args:
            name: of its proposer; empty: the default. One that cannot be made drafts nothing.
            lane: the index of its lane.
        """
        name = name or self.default
        proposer = self._made(name, geometry, vocab_size, lane)
        if proposer is None or not proposer.max_tokens:
            return None
        drafter = Drafter(name, proposer, vocab_size)
        self.restart(drafter, token_ids)
        return drafter

    def memory_bytes(self, geometry: LaneGeometry, vocab_size: int) -> int:
        """That the default one holds of a session, and the draft model: its lanes are there for all."""
        proposer = self._made(self.default, geometry, vocab_size)
        of_default = 0 if proposer is None or self.default == DRAFT_MODEL else proposer.memory_bytes
        return of_default + (0 if self.draft_model is None else self.draft_model.lane_bytes)

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
            else:
                self._aside(drafter).tell(lambda: drafter.hear(news))

    def propose(self, wishes: Sequence[Wish]) -> list[tuple[int, ...]]:
        """Drafts for each wish; none where they do not come in time."""
        aside: dict[Aside, list[Wish]] = {}
        for wish in wishes:
            if not wish.drafter.is_immediate:
                aside.setdefault(self._aside(wish.drafter), []).append(wish)
        answers = {asked: iter(self._propose_aside(asked, of_one)) for asked, of_one in aside.items()}
        return [
            _answer(wish, wish.drafter.take_news())
            if wish.drafter.is_immediate
            else next(answers[self._aside(wish.drafter)])
            for wish in wishes
        ]

    def close(self, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Ends the threads, unless they hang."""
        for aside in (self._plugins, self._model):
            aside.close(timeout_seconds)

    def _aside(self, drafter: Drafter) -> Aside:
        return self._model if drafter.is_of_model else self._plugins

    def _propose_aside(self, aside: Aside, wishes: Sequence[Wish]) -> list[tuple[int, ...]]:
        """On a thread, where it can be asked."""
        if not aside.can_be_asked():
            return [()] * len(wishes)
        told = [(wish, wish.drafter.take_news()) for wish in wishes]
        if aside is self._model and self.draft_model is not None:
            work = partial(_answers_of_model, self.draft_model, told)
            late_seconds = self.draft_model.patient_seconds([wish.num_tokens for wish in wishes])
        else:
            work, late_seconds = partial(_answers, told), LATE_SECONDS
        drafts = aside.ask(work, late_seconds if self._late_seconds is None else self._late_seconds)
        return [()] * len(wishes) if drafts is None else drafts

    def _made(self, name: str, geometry: LaneGeometry, vocab_size: int, lane: int = 0) -> Proposer | None:
        if name == DRAFT_MODEL and self.draft_model is not None:
            return self.draft_model.session(lane)
        if name not in self.names:
            _log.info("a session goes on without drafts: its proposer is not installed here", proposer=name)
            return None
        try:
            return self._find(name)(geometry, vocab_size)
        except Exception:  # of a plugin: the session opens all the same
            _log.exception("a proposer could not be made", proposer=name)
            return None


def _answers(told: _Told) -> list[tuple[int, ...]]:
    return [_answer(*each) for each in told]


def _answer(wish: Wish, news: News) -> tuple[int, ...]:
    """Behind what the proposer is told first."""
    wish.drafter.hear(news)
    return wish.drafter.propose(wish.token_id, wish.num_tokens)


def _answers_of_model(model: DraftModel, told: _Told) -> list[tuple[int, ...]]:
    for wish, news in told:
        wish.drafter.hear(news)
    return propose_together(
        model, [(wish.drafter, wish.drafter.asked(wish.token_id, wish.num_tokens, wish.choosing)) for wish, _ in told]
    )
