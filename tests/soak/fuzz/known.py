"""What the fuzzer has learned by now: ids that exist, existed, or belong to somebody else."""

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

MAX_LIVE_SESSIONS = 12
MAX_LIVE_LANES = 6


@dataclass
class Lane:
    """A session that was opened on the worker behind the routers' back."""

    session_id: str
    epoch: int
    history_length: int = 0


@dataclass
class Known:
    """Attributes:
    model: name of the model that the worker serves.
    vocab_size: of it.
    addresses: where a made-up worker may claim to listen.
    foreign: session ids of another tenant.
    sessions: the fuzzer's open sessions.
    long_lived: those of them that asked for a TTL of their own.
    closed: ids that were sessions.
    lanes: see `Lane`.
    at_worker: session ids that some call to the worker itself has named.
    keys, tokens: ids of the credentials that the fuzzer made.
    """

    model: str
    vocab_size: int
    addresses: list[str]
    foreign: list[str] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    long_lived: set[str] = field(default_factory=set)
    closed: deque[str] = field(default_factory=lambda: deque(maxlen=64))
    lanes: list[Lane] = field(default_factory=list)
    at_worker: set[str] = field(default_factory=set)
    keys: dict[str, None] = field(default_factory=dict)
    tokens: dict[str, None] = field(default_factory=dict)

    def session_id(self, chance: random.Random, *, may_be_foreign: bool = False) -> str:
        """Mostly an open session's, else one that is near to it.

        Args:
            may_be_foreign: where an id alone must not open anything. Whoever reaches a worker, or is an administrator,
                may do anything to anybody's session.
        """
        draw = chance.random()
        if self.sessions and draw < 0.75:
            return chance.choice(self.sessions)
        if self.closed and draw < 0.85:
            return chance.choice(self.closed)
        if may_be_foreign and self.foreign and draw < 0.92:
            return chance.choice(self.foreign)
        return look_alike(chance.choice(self.sessions or [f"{self.model}.{'x' * 22}"]), chance)

    def lane(self, chance: random.Random) -> Lane:
        return chance.choice(self.lanes) if self.lanes else Lane("fuzz.none", 1)

    def forget_session(self, session_id: str) -> None:
        if session_id in self.sessions:
            self.sessions.remove(session_id)
            self.closed.append(session_id)
        self.long_lived.discard(session_id)

    def lane_opened(self, request: Any, answer: Any) -> None:
        self.forget_lane(request.session_id)
        self.lanes.append(Lane(request.session_id, request.epoch, answer.lane.history_length))

    def lane_grew(self, request: Any, answer: Any) -> None:
        for lane in self.lanes:
            if lane.session_id == request.session_id:
                lane.history_length = answer.lane.history_length

    def forget_lane(self, session_id: str) -> None:
        self.lanes = [lane for lane in self.lanes if lane.session_id != session_id]


def look_alike(identity: str, chance: random.Random) -> str:
    """An id that differs from a real one as little as possible."""
    at = chance.randrange(len(identity))
    other_letter = identity[:at] + chance.choice("aB0_-.") + identity[at + 1 :]
    around = (f" {identity}", f"{{{identity}}}", f"{identity}A", f"{identity}\x00", f"{identity}\n")
    same_looks = (identity.replace(".", "\u2024"), identity.replace("demo", "d\u0435mo"))
    return chance.choice((other_letter, identity[:-1], identity.swapcase(), *around, *same_looks))
