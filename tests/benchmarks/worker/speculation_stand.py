"""The engine on which `make bench-speculation` plays talks."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.proposer import NewProposer
from kakeya_worker.engine.speculation import proposers
from kakeya_worker.engine.speculation.draft_model import DraftModel
from kakeya_worker.engine.speculation.ngram import NgramProposer
from kakeya_worker.engine.speculation.proposers import Proposers
from kakeya_worker.torch_backend import TorchVerifier
from tests.benchmarks import models
from tests.benchmarks.worker.dictated_verifier import DictatedVerifier
from tests.benchmarks.worker.engine_session import EngineSession
from tests.benchmarks.worker.talks import Talk

LANE = "lane"
"""`ngram` over no more than a lane keeps."""
NUM_SESSIONS = 8
SINK, CHUNK, STEP_TOKENS = 4, 32, 128


@dataclass
class Played:
    """Attributes:
    seconds: in which something was generated.
    gaps: seconds from one token of the first session to the next.
    digests: of the histories, turn by turn.
    num_drafted, num_accepted: by position; see `DictatedVerifier`.
    """

    seconds: float = 0.0
    num_tokens: int = 0
    gaps: list[float] = field(default_factory=list)
    digests: list[int | None] = field(default_factory=list)
    num_drafted: Counter[int] = field(default_factory=Counter)
    num_accepted: Counter[int] = field(default_factory=Counter)


class Stand:
    """An engine with a model, on which talks are played; `draft_model` drafts for those that ask for it."""

    def __init__(self, model: Path, window: int, directory: Path, draft_model: Path | None = None) -> None:
        num_threads = int(models.num_threads())
        self._verifier = DictatedVerifier(
            str(model), weights="int8", kv_dtype="auto", num_threads=num_threads, cache_directory=directory
        )
        geometry = LaneGeometry(SINK, window, CHUNK)
        found = Proposers(
            LANE, _find(geometry), self._draft_model(draft_model, geometry, directory) if draft_model else None
        )
        self.engine = Engine(self._verifier, geometry, NUM_SESSIONS, STEP_TOKENS, proposers=found)
        self.engine.fit_step_costs()
        self.engine.start()
        self._fill(geometry.num_slots)

    def play(self, played_talks: Sequence[Talk], speculations: Sequence[str]) -> Played:
        """All at once, turn by turn, each in a session of its own with a proposer of its own."""
        played = Played()
        sessions = [
            EngineSession(self.engine, str(number), speculation=name) for number, name in enumerate(speculations)
        ]
        pairs_of = list(zip(sessions, played_talks, strict=True))
        for session, talk in pairs_of:
            self._verifier.dictate(session.lane, talk.dictation)
        for number in range(len(played_talks[0].turns)):
            for session, talk in pairs_of:
                given = talk.turns[number].given
                if talk.dictation:
                    self._verifier.give(session.lane, session.length + len(given))
                session.prefill(given)
            self._generate(pairs_of, number, played)
        for session in sessions:
            session.close()
        played.num_drafted, played.num_accepted = self._verifier.take_counts()
        return played

    def _draft_model(self, model: Path, geometry: LaneGeometry, directory: Path) -> DraftModel:
        verifier = TorchVerifier(
            str(model),
            weights="int8",
            kv_dtype="auto",
            num_threads=int(models.num_threads()),
            cache_directory=directory,
        )
        return DraftModel(verifier, geometry, NUM_SESSIONS, self._verifier.facts.vocab_size)

    def _fill(self, num_slots: int) -> None:
        """All lanes, with what a model computes: it is seen where a transcript is given without being computed."""
        session = EngineSession(self.engine, "fill")
        first = session.lane
        session.prefill(tuple(number % 97 for number in range(num_slots)))
        session.close()  # the engine rests
        for lane in range(NUM_SESSIONS):
            if lane != first:
                self._verifier.copy_lane(first, lane, num_slots)

    def _generate(self, pairs_of: Sequence[tuple[EngineSession, Talk]], number: int, played: Played) -> None:
        """What the sessions say in a turn."""
        began = time.perf_counter()
        clock = _Clock(played.gaps, began)
        generates = [
            session.generate(
                clock.tick if session is pairs_of[0][0] else _nothing,
                max_tokens=talk.turns[number].num_tokens,
                sampling=talk.sampling,
                eos_token_ids=talk.eos_token_ids,
            )
            for session, talk in pairs_of
        ]
        for (session, _), generate in zip(pairs_of, generates, strict=True):
            result = session.finished(generate)
            played.num_tokens += result.num_generated
            played.digests.append(result.lane.history_digest)
        played.seconds += time.perf_counter() - began


@dataclass
class _Clock:
    """Keeps the seconds between ticks."""

    gaps: list[float]
    latest: float

    def tick(self) -> None:
        now = time.perf_counter()
        self.gaps.append(now - self.latest)
        self.latest = now


def _nothing() -> None:
    """Of a token that is not timed."""


@contextmanager
def stand(model: Path, window: int, directory: Path, draft_model: Path | None = None) -> Iterator[Stand]:
    made = Stand(model, window, directory, draft_model)
    try:
        yield made
    finally:
        made.engine.shut_down()


def _find(geometry: LaneGeometry) -> Callable[[str], NewProposer]:
    def find(name: str) -> NewProposer:
        return proposers.load(name) if name != LANE else lambda *_: NgramProposer(geometry.capacity)

    return find
