"""Proposers that prove something: one that knows what comes, and those that lie."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.proposer import NewProposer
from kakeya_worker.engine.speculation.draft_model import DraftModel
from kakeya_worker.engine.speculation.names import DRAFT_MODEL
from kakeya_worker.engine.speculation.proposers import Proposers

MAX_TOKENS = 15
PATIENT_SECONDS = 30.0  # what is late is another test's


def proposers(new_proposer: NewProposer, *, late_seconds: float = PATIENT_SECONDS) -> Proposers:
    """All sessions have this one."""
    return Proposers("tested", lambda _: new_proposer, late_seconds=late_seconds)


def proposers_of_model(model: DraftModel) -> Proposers:
    """For all sessions this one drafts."""
    return Proposers(DRAFT_MODEL, draft_model=model, late_seconds=PATIENT_SECONDS)


@dataclass
class Record:
    """What came behind which history, in all sessions that were told to it.

    Attributes:
        wrong_every: of the drafts from it so many-th is another token; 0: none.
        is_silent: nothing is drafted from it.
    """

    wrong_every: int = 0
    is_silent: bool = False
    num_drafted: int = 0
    followers: dict[int, int] = field(default_factory=dict)  # by the digest of a history

    def __call__(self, geometry: LaneGeometry, vocab_size: int) -> "Recalling":
        return Recalling(self, vocab_size)


class Recalling:
    """Drafts from a record what came behind the same history before, and adds what comes to it."""

    max_tokens = MAX_TOKENS
    memory_bytes = 0
    is_immediate = False

    def __init__(self, record: Record, vocab_size: int) -> None:
        self._record = record
        self._vocab_size = vocab_size
        self._digest = 0

    def restart(self, token_ids: Sequence[int]) -> None:
        self._digest = hash(tuple(token_ids))

    def extend(self, token_ids: Sequence[int]) -> None:
        for token_id in token_ids:
            self._record.followers[self._digest] = token_id
            self._digest = _extended(self._digest, token_id)

    def propose(self, token_id: int, num_tokens: int) -> Sequence[int]:
        record, digest = self._record, _extended(self._digest, token_id)
        drafts: list[int] = []
        while len(drafts) < num_tokens and digest in record.followers and not record.is_silent:
            follower = record.followers[digest]
            digest = _extended(digest, follower)
            record.num_drafted += 1
            is_wrong = record.wrong_every and record.num_drafted % record.wrong_every == 0
            drafts.append((follower + 1) % self._vocab_size if is_wrong else follower)
        return drafts


def _extended(digest: int, token_id: int) -> int:
    return hash((digest, token_id))


class Lying:
    """Drafts anything: other tokens, such as no model has, more than were asked for, things that are no tokens."""

    max_tokens = MAX_TOKENS
    memory_bytes = 0
    is_immediate = False

    def __init__(self, geometry: LaneGeometry, vocab_size: int) -> None:
        self._random = random.Random(0)
        self._vocab_size = vocab_size
        self._num_asked = 0

    def restart(self, token_ids: Sequence[int]) -> None:
        """Nothing."""

    def extend(self, token_ids: Sequence[int]) -> None:
        """Nothing."""

    def propose(self, token_id: int, num_tokens: int) -> Sequence[int]:
        self._num_asked += 1
        any_tokens = [self._random.randrange(self._vocab_size) for _ in range(num_tokens)]
        return (
            any_tokens,
            any_tokens * 50,
            [token_id, self._vocab_size, token_id],
            [token_id, -1],
            [1 << 70],
        )[self._num_asked % 5]


class Failing(Lying):
    """Raises after a while."""

    def propose(self, token_id: int, num_tokens: int) -> Sequence[int]:
        drafts = super().propose(token_id, num_tokens)
        if self._num_asked % 7 == 0:
            raise ZeroDivisionError("of a proposer")
        return drafts
