"""The proposer seam: what drafts the next tokens of a session, for the verifier to check.

A proposer is found by the entry point group `kakeya.proposer`; the entry point names a callable of the form of
`NewProposer`. Whatever it drafts, a session's tokens are those that it has without drafts: they only come sooner.
"""

from collections.abc import Sequence
from typing import Protocol

from kakeya_worker.engine.seams.geometry import LaneGeometry


class Proposer(Protocol):
    """Drafts for one session. It is no other session's, and used by one thread at a time.

    One that raises is not asked again by its session. One that does not come back is given up, with all others of its
    worker.

    Attributes:
        max_tokens: the most that it ever drafts at once; 0: none, and it is neither asked nor told anything.
        memory_bytes: what it holds, at most, however long the history becomes.
        is_immediate: it never waits, and takes microseconds: it is used on the engine's thread, since to wake another
            would take longer. Nothing keeps steps from waiting for one that says so and is slow.
    """

    @property
    def max_tokens(self) -> int: ...

    @property
    def memory_bytes(self) -> int: ...

    @property
    def is_immediate(self) -> bool: ...

    def restart(self, token_ids: Sequence[int]) -> None:
        """Forgets everything, and begins with what the session's lane keeps of its history, ascending.

        So it begins in a lane that was restored, forked, rewound or moved. Between two of these tokens others may have
        been forgotten.
        """
        ...

    def extend(self, token_ids: Sequence[int]) -> None:
        """The history goes on with these: they were appended, or chosen, drafts that were right among them."""
        ...

    def propose(self, token_id: int, num_tokens: int) -> Sequence[int]:
        """Up to `num_tokens` that may come behind the history and this token, which is chosen but not in it yet.

        Fewer, or none, where it knows no better: each draft that is wrong costs time.
        """
        ...


class NewProposer(Protocol):
    """Makes the proposer of a session, whose history is empty."""

    def __call__(self, geometry: LaneGeometry, vocab_size: int) -> Proposer: ...
