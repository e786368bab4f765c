"""The stage: runs many scripts at once on a verifier, each on a lane of its own."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import Retention
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.seams.verifier import Verifier
from kakeya_worker.quality.chat_template import Tokens
from kakeya_worker.quality.script import Feed, Logits, Script

T = TypeVar("T")

STEP_TOKENS = 512  # of a forward pass: enough to keep matrix products busy, few enough for a quick Ctrl-C
_NO_LOGITS = np.empty(0, np.float32)


@dataclass(eq=False)
class _Player(Generic[T]):
    """A script that is running.

    Attributes:
        number: of the script.
        pending: tokens still to be fed.
        wants_logits: after them.
    """

    number: int
    script: Script[T]
    lane: Lane
    pending: Tokens = field(init=False)
    wants_logits: bool = field(init=False)

    def take(self, feed: Feed) -> None:
        """What is taken back leaves its slots behind, which no later token sees: just as a rejected draft's."""
        if feed.start is not None:
            self.lane.length = feed.start
        self.pending, self.wants_logits = feed.tokens, feed.wants_logits

    def row(self, most: int) -> Row:
        return self.lane.row(self.pending[:most])

    def commit(self, row: Row) -> None:
        self.lane.commit(row)
        self.pending = self.pending[len(row.token_ids) :]


class Stage:
    """A verifier with its slab.

    Args:
        verifier: loaded; its slab is allocated here, once for all geometries that are narrower.
        num_lanes: so many scripts run at once.
    """

    def __init__(self, verifier: Verifier, geometry: LaneGeometry, num_lanes: int) -> None:
        verifier.allocate(geometry, num_lanes)
        self._verifier = verifier
        self.geometry = geometry
        self._num_lanes = num_lanes

    def play(self, scripts: Iterable[tuple[Script[T], Retention]], on_end: Callable[[], Any] = lambda: None) -> list[T]:
        """Runs scripts, each with what its session retains; what they return, in their order.

        Args:
            on_end: called whenever one has ended.
        """
        waiting = deque(enumerate(scripts))
        free, players, results = deque(range(self._num_lanes)), list[_Player[T]](), dict[int, T]()
        while waiting or players:
            if waiting and free:
                number, (script, retention) = waiting.popleft()
                player = _Player(number, script, Lane(self.geometry, free.popleft(), retention))
                players.append(player)
                ended = self._cue([(player, None)])
            else:
                ended = self._step(players)
            for player, result in ended:
                results[player.number] = result
                players.remove(player)
                free.append(player.lane.index)
                on_end()
        return [results[number] for number in sorted(results)]

    def _step(self, players: Sequence[_Player[T]]) -> list[tuple[_Player[T], T]]:
        """One forward pass; those whose script has ended."""
        rows = self._rows(players)
        self._verifier.forward([row for _, row in rows])
        for player, row in rows:
            player.commit(row)
        fed = [player for player, _ in rows if not player.pending]
        logits = self._logits([player for player in fed if player.wants_logits])
        return self._cue([(player, logits.get(player.number, _NO_LOGITS)) for player in fed])

    def _cue(self, players: Sequence[tuple[_Player[T], Logits | None]]) -> list[tuple[_Player[T], T]]:
        """Lets scripts go on, from the logits that they waited for or from their beginning; those that ended."""
        ended = []
        for player, logits in players:
            try:
                player.take(next(player.script) if logits is None else player.script.send(logits))
            except StopIteration as end:
                ended.append((player, end.value))
        return ended

    def _rows(self, players: Sequence[_Player[T]]) -> list[tuple[_Player[T], Row]]:
        """Short ones first: an answer goes on while others read."""
        rows, room = [], STEP_TOKENS
        for player in sorted(players, key=lambda player: len(player.pending)):
            if room <= 0:
                break
            row = player.row(min(room, self.geometry.chunk))
            rows.append((player, row))
            room -= len(row.token_ids)
        return rows

    def _logits(self, players: Sequence[_Player[T]]) -> dict[int, Logits]:
        if not players:
            return {}
        logits = self._verifier.logits([player.lane.index for player in players])  # [players, vocab]
        return dict(zip((player.number for player in players), logits, strict=True))
