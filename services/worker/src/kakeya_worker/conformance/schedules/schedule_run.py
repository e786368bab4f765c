"""Runs schedules on one engine, as a worker's sessions would over its life."""

from concurrent.futures import Future

import pytest

from kakeya_shared.errors.tree import NoCapacity
from kakeya_worker.conformance.exact_reference import ExactReference, ReferenceSession
from kakeya_worker.conformance.schedules.schedule import (
    GEOMETRY,
    NUM_LANES,
    STEP_TOKENS,
    Action,
    AppendTokens,
    Cancel,
    Close,
    Fork,
    GenerateTokens,
    Schedule,
    Settle,
)
from kakeya_worker.conformance.schedules.scheduled_session import TIMEOUT_SECONDS, ScheduledSession
from kakeya_worker.conformance.schedules.watched_verifier import WatchedVerifier
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.lane_state import ForkSource, OpenLane
from kakeya_worker.engine.seams.retention import SessionOptions
from kakeya_worker.engine.seams.verifier import Verifier
from kakeya_worker.engine.speculation.proposers import Proposers


class ScheduleRunner:
    """An engine, and the sessions of the schedule that runs.

    Args:
        reference: the same model as the verifier's.
        proposers: what drafts; None: nothing does.
    """

    def __init__(self, verifier: Verifier, reference: ExactReference, proposers: Proposers | None = None) -> None:
        self._verifier = WatchedVerifier(verifier)
        self._reference = reference
        self._engine = Engine(self._verifier, GEOMETRY, NUM_LANES, STEP_TOKENS, proposers=proposers)
        self._engine.start()
        self._epoch = 0
        self._sessions: dict[int, ScheduledSession] = {}

    def run(self, schedule: Schedule) -> None:
        """Runs it to its end; an AssertionError tells what differs from the reference."""
        self._engine.reset().result(TIMEOUT_SECONDS)  # whatever a failed schedule left
        self._sessions.clear()
        self._verifier.poison()
        for action in schedule.actions:
            self._act(action, schedule.options[action.session])
        for session in self._sessions.values():
            session.settle()
        self._check_totals()
        for number in list(self._sessions):
            self._sessions.pop(number).close()
        self._check_totals()

    def shut_down(self) -> None:
        """Raises whatever the engine's thread died of."""
        self._engine.shut_down()
        if self._engine.crashed.done():
            self._engine.crashed.result()

    def _act(self, action: Action, options: SessionOptions) -> None:
        session = self._sessions.get(action.session)
        if isinstance(action, Fork):
            self._fork(action)
            return
        if isinstance(action, AppendTokens | GenerateTokens):
            session = session or self._open(action.session, options)
        if session is None:
            return
        match action:
            case AppendTokens():
                session.settle()
                session.append(action)
            case GenerateTokens():
                session.settle()
                session.generate(action)
            case Cancel():
                session.cancel(action)
            case Close():
                self._sessions.pop(action.session).close(action.after)
            case Settle():
                session.settle()

    def _open(self, number: int, options: SessionOptions) -> ScheduledSession | None:
        """None where there is no lane, which is where the other sessions hold them all."""
        self._epoch += 1
        lane = self._lane(self._engine.open(f"s{number}", self._epoch, options))
        if lane is None:
            return None
        self._sessions[number] = session = ScheduledSession(
            self._engine,
            self._verifier,
            f"s{number}",
            self._epoch,
            lane.sink,
            lane.window,
            options.refuses_overflow,
            ReferenceSession(self._reference, lane.sink, lane.window),
        )
        return session

    def _fork(self, fork: Fork) -> None:
        source = self._sessions.get(fork.source)
        if source is None or fork.session in self._sessions:
            return
        source.settle()
        self._epoch += 1
        point = ForkSource(source.session_id, source.epoch, source.length)
        if self._lane(self._engine.fork(f"s{fork.session}", self._epoch, point)) is not None:
            self._sessions[fork.session] = source.fork(f"s{fork.session}", self._epoch)

    def _lane(self, opening: "Future[OpenLane]") -> OpenLane | None:
        if len(self._sessions) == NUM_LANES:
            with pytest.raises(NoCapacity):
                opening.result(TIMEOUT_SECONDS)
            return None
        return opening.result(TIMEOUT_SECONDS)

    def _check_totals(self) -> None:
        totals = self._engine.lanes.totals()
        num_kept = sum(min(session.length, session.capacity) for session in self._sessions.values())
        found = totals.num_lanes_in_use, totals.kv_live_bytes
        expected = len(self._sessions), num_kept * totals.kv_bytes_per_token
        if found != expected:
            raise AssertionError(f"lanes in use and live bytes: {found}, must be {expected}")
