"""What the tests ask of an engine, with little to write."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from kakeya_shared.errors.tree import KakeyaError
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.lane_state import LaneState, OpenLane
from kakeya_worker.engine.lanes.operation import Append, Generate
from kakeya_worker.engine.sampling.sampling import Sampling, TokenDetail
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions
from kakeya_worker.engine.seams.verifier import Verifier
from kakeya_worker.engine.speculation.proposers import Proposers

SINK, WINDOW, NUM_LANES = 4, 64, 3
NUM_SLOTS = 114  # of a lane: sinks, window, and slack for chunks of 32 in blocks of 16
BYTES = 2_048  # of one token: 4 layers x 2 KV heads x 32 x 4 bytes x K and V
TIMEOUT = 60.0
_OF_GENERATE = (
    "num_top_logprobs",
    "stop_token_sequences",
    "previous_token_ids",
    "number",
    "min_tokens",
    "ignores_eos",
    "constraint",
    "closes",
)


@dataclass
class Tokens:
    """Collects a generate's tokens; `enough` is set once there are `wanted`."""

    wanted: int = 1
    ids: list[int] = field(default_factory=list)
    details: list[TokenDetail | None] = field(default_factory=list)
    enough: Event = field(default_factory=Event)

    def __call__(self, token_id: int, detail: TokenDetail | None) -> None:
        self.ids.append(token_id)
        self.details.append(detail)
        if len(self.ids) >= self.wanted:
            self.enough.set()


def state_of(length: int) -> LaneState:
    """Of a session with the lane's own sinks and window."""
    if length <= SINK + WINDOW:
        return LaneState(length, length * BYTES, (range(length),) if length else ())
    return LaneState(length, (SINK + WINDOW) * BYTES, (range(SINK), range(length - WINDOW, length)))


def open_session(engine: Engine, session_id: str = "s", **options: Any) -> OpenLane:
    return engine.open(session_id, 1, SessionOptions(**options)).result(TIMEOUT)


def start_append(engine: Engine, length: int, num_tokens: int, session_id: str = "s", number: int = 0) -> Append:
    append = Append(session_id, 1, length, tuple(range(100, 100 + num_tokens)), number=number)
    engine.submit(append)
    return append


@contextmanager
def engines_in_turn(verifier: Verifier, geometry: LaneGeometry) -> Iterator[Callable[[Proposers | None], Engine]]:
    """Starts engines, one after the other, whose sessions "r", "s" and "t" have the same 30 tokens."""
    engines: list[Engine] = []

    def started(proposers: Proposers | None) -> Engine:
        for engine in engines:
            engine.shut_down()
        engine = Engine(verifier, geometry, NUM_LANES, step_tokens=64, proposers=proposers)
        engines.append(engine)
        engine.start()
        for session_id in ("r", "s", "t"):
            open_session(engine, session_id)
            start_append(engine, 0, 30, session_id).future.result(TIMEOUT)
        return engine

    yield started
    for engine in engines:
        engine.shut_down()
        assert not engine.crashed.done()


def start_generate(
    engine: Engine, length: int, max_tokens: int, *, session_id: str = "s", **kwargs: Any
) -> tuple[Generate, Tokens]:
    """Submits a generate; `kwargs` are its own, those of its sampling, and how many tokens are waited for."""
    tokens = Tokens(wanted=kwargs.pop("wanted", 1))
    of_generate = {name: kwargs.pop(name) for name in _OF_GENERATE if name in kwargs}
    eos_token_ids = frozenset(kwargs.pop("eos", ()))
    generate = Generate(
        session_id,
        1,
        length,
        max_tokens=max_tokens,
        eos_token_ids=eos_token_ids,
        sampling=Sampling(**kwargs),
        on_token=tokens,
        **of_generate,
    )
    engine.submit(generate)
    return generate, tokens


def live_state(engine: Engine, session_id: str = "s") -> LaneState:
    """What the engine publishes, the call before it having ended."""
    return {report.session_id: report.state for report in engine.lanes.reports()}[session_id]


def end_of_step(engine: Engine, length: int) -> None:
    """Waits until the step is over whose result the caller has: the next command is not begun before."""
    start_append(engine, length, 0).future.result(TIMEOUT)


def error_of(future: "Future[Any]") -> KakeyaError:
    error = future.exception(TIMEOUT)
    assert isinstance(error, KakeyaError)
    return error
