"""A row: one session's tokens in a step, and all the integers that a backend needs to run them."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from kakeya_worker.engine.seams.geometry import Booleans, Integers
from kakeya_worker.engine.seams.retention import Retention


@dataclass(frozen=True)
class Row:
    """One session's tokens in a step.

    Its keys are the sinks and then the recent tokens in the order of the history: never the order of the ring,
    which depends on the slack, and never a slot that no query of the row sees.

    Attributes:
        lane: index in the slab.
        start: history index of the first token.
        token_ids: 1 to C of them.
        retention: of the session.
        is_scored: the logits after each of its tokens are wanted, and not only those after the last.
    """

    lane: int
    start: int
    token_ids: tuple[int, ...]
    retention: Retention
    is_scored: bool = False

    def first(self, num_tokens: int) -> "Row":
        """The same row with its first tokens only."""
        return replace(self, token_ids=self.token_ids[:num_tokens])

    @property
    def num_kept(self) -> int:
        """Of its last tokens, how many final hidden vectors are wanted."""
        return len(self.token_ids) if self.is_scored else 1

    @property
    def end(self) -> int:
        """The history length after this row."""
        return self.start + len(self.token_ids)

    @cached_property
    def positions(self) -> Integers:
        """Angles of the keys that are written, and of the queries against recent keys; [queries]."""
        return np.arange(self.start, self.end)

    @property
    def sink_positions(self) -> Integers:
        """Angles of the queries against the sinks; [queries]."""
        return self.retention.sink_positions(self.positions)

    @property
    def slots(self) -> Integers:
        """Where the tokens' K and V are written; [queries]."""
        return self.retention.slots(self.positions)

    @property
    def sinks(self) -> range:
        """The sinks among the row's keys, by history index."""
        return range(min(self.retention.sink, self.end))

    @property
    def recent(self) -> range:
        """The other keys, by history index."""
        return self.retention.recent(self.start, self.end)

    @property
    def keys(self) -> Integers:
        """By history index; [keys]."""
        return np.concatenate([np.arange(keys.start, keys.stop) for keys in (self.sinks, self.recent)])

    @property
    def visible(self) -> Booleans:
        """Which keys each query sees; [queries, keys]."""
        return self.retention.visible(self.positions[:, None], self.keys)
