"""The stage: runs many scripts at once on a verifier, each on a lane of its own."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from kakeya_bench.quality.material.script import Logits, Script, Tokens
from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import Retention
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.seams.verifier import Verifier

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
    pending: Tokens = ()
    wants_logits: bool = False

    def go_on(self, logits: Logits | None = None) -> None:
        """From its beginning, or from the logits that it waited for. Raises StopIteration with what it returns.

        What is taken back leaves its slots behind, which no later token sees: just as a rejected draft's.
        """
        feed = next(self.script) if logits is None else self.script.send(logits)
        if feed.start is not None:
            self.lane.length = feed.start
        self.pending, self.wants_logits = feed.tokens, feed.wants_logits


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

    def play(
        self, scripts: Iterable[tuple[Script[T], Retention]], on_step: Callable[[int], Any] = lambda num_ended: None
    ) -> list[T]:
        """Runs scripts, each with what its session retains; what they return, in their order.

        Args:
            on_step: called after each step, with the number of scripts that have ended.
        """
        waiting = deque(enumerate(scripts))
        free, players, results = deque(range(self._num_lanes)), list[_Player[T]](), dict[int, T]()

        def cue(player: _Player[T], logits: Logits | None = None) -> None:
            try:
                player.go_on(logits)
            except StopIteration as end:
                results[player.number] = end.value
                players.remove(player)
                free.append(player.lane.index)

        while waiting or players:
            if waiting and free:
                number, (script, retention) = waiting.popleft()
                players.append(_Player(number, script, Lane(self.geometry, free.popleft(), retention)))
                cue(players[-1])
            else:
                for player, logits in self._step(players):
                    cue(player, logits)
                on_step(len(results))
        return [results[number] for number in sorted(results)]

    def _step(self, players: Sequence[_Player[T]]) -> list[tuple[_Player[T], Logits]]:
        """One forward pass; those who have been fed, with the logits that they wait for."""
        rows = self._rows(players)
        self._verifier.forward([row for _, row in rows])
        for player, row in rows:
            player.lane.commit(row)
            player.pending = player.pending[len(row.token_ids) :]
        fed = [player for player, _ in rows if not player.pending]
        wanting = [player.lane.index for player in fed if player.wants_logits]
        logits = dict(zip(wanting, self._verifier.logits(wanting), strict=True)) if wanting else {}
        return [(player, logits.get(player.lane.index, _NO_LOGITS)) for player in fed]

    def _rows(self, players: Sequence[_Player[T]]) -> list[tuple[_Player[T], Row]]:
        """Short ones first: an answer goes on while others read."""
        rows, room = [], STEP_TOKENS
        for player in sorted(players, key=lambda player: len(player.pending)):
            if room <= 0:
                break
            row = player.lane.row(player.pending[: min(room, self.geometry.chunk)])
            rows.append((player, row))
            room -= len(row.token_ids)
        return rows
