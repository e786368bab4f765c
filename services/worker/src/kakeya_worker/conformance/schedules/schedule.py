"""Random schedules: what several sessions do, side by side and at any moment."""

from dataclasses import dataclass
from itertools import chain

from hypothesis import strategies as st

from kakeya_worker.engine.sampling.sampling import Sampling
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions

NUM_SESSIONS, NUM_LANES = 4, 3  # so that one of them may find no lane
GEOMETRY = LaneGeometry(sink=4, window=16, chunk=5)
STEP_TOKENS = 8


@dataclass(frozen=True)
class AppendTokens:
    """Starts an append, once the session's last operation has ended."""

    session: int
    token_ids: tuple[int, ...]
    num_top_logprobs: int | None


@dataclass(frozen=True)
class GenerateTokens:
    """Starts a Generate, once the session's last operation has ended."""

    session: int
    max_tokens: int
    sampling: Sampling
    eos_token_ids: frozenset[int]
    stop_token_sequences: tuple[tuple[int, ...], ...]
    min_tokens: int
    ignores_eos: bool


@dataclass(frozen=True)
class Cancel:
    """Cancels what runs on the session, if anything still does.

    Attributes:
        after: tokens that it has committed by then, at least.
        by_command: by `stop_operation` instead of `cancel`.
    """

    session: int
    after: int
    by_command: bool


@dataclass(frozen=True)
class Close:
    """Closes the session, whatever it is doing; what it is told next opens it anew.

    Attributes:
        after: tokens that the running operation, if any, has committed by then, at least.
    """

    session: int
    after: int


@dataclass(frozen=True)
class Fork:
    """Opens the session as a copy of another, once that one's last operation has ended; where there is none, or the
    session is open already, nothing happens.
    """

    session: int
    source: int


@dataclass(frozen=True)
class Settle:
    """Waits for what runs on the session."""

    session: int


Action = AppendTokens | GenerateTokens | Cancel | Close | Fork | Settle


@dataclass(frozen=True)
class Schedule:
    """What each session asks for when it opens, and what happens."""

    options: tuple[SessionOptions, ...]
    actions: tuple[Action, ...]


def schedules(vocab_size: int) -> st.SearchStrategy[Schedule]:
    """Any schedule."""
    return st.builds(
        Schedule,
        options=st.tuples(*[_options()] * NUM_SESSIONS),
        actions=st.lists(_moves(vocab_size), min_size=4, max_size=16).map(lambda moves: tuple(chain(*moves))),
    )


@st.composite
def _options(draw: st.DrawFn) -> SessionOptions:
    sink = draw(st.none() | st.integers(0, GEOMETRY.capacity - 1))
    room = GEOMETRY.capacity - (GEOMETRY.sink if sink is None else sink)
    pin = draw(st.just(0) | st.integers(0, GEOMETRY.capacity - room))
    return SessionOptions(sink, draw(st.none() | st.integers(1, room)), pin, refuses_overflow=draw(st.booleans()))


@st.composite
def _moves(draw: st.DrawFn, vocab_size: int) -> tuple[Action, ...]:
    """What one session does at a stretch."""
    session, after = draw(st.integers(0, NUM_SESSIONS - 1)), draw(st.integers(0, 6))
    append = AppendTokens(session, _tokens(draw, vocab_size), draw(st.sampled_from([None, None, 0, 2])))
    generate = draw(_generates(session, vocab_size))
    cancel = Cancel(session, after, by_command=draw(st.booleans()))
    close = Close(session, after)
    fork = Fork(session, draw(st.integers(0, NUM_SESSIONS - 1)))
    moves: tuple[tuple[Action, ...], ...] = (
        (append,),
        (append, generate),
        (append, generate, Settle(session)),
        (append, cancel),
        (append, generate, cancel),
        (generate, cancel),
        (generate,),
        (close,),
        (append, close),
        (fork, append, generate),
        (close, fork, generate),
    )
    return draw(st.sampled_from(moves))


def _tokens(draw: st.DrawFn, vocab_size: int) -> tuple[int, ...]:
    """So many, from anywhere in a row that has each id once."""
    num_tokens = draw(st.sampled_from([0, 1, 2, 3, 5, 6, 8, 11, 19, 33]))
    first = draw(st.integers(0, vocab_size - 1))
    return tuple((first + 37 * number) % vocab_size for number in range(num_tokens))


def _generates(session: int, vocab_size: int) -> st.SearchStrategy[GenerateTokens]:
    return st.builds(
        GenerateTokens,
        st.just(session),
        max_tokens=st.integers(1, 12),
        sampling=_samplings(vocab_size),
        # Every so many ids, since hardly a single one would ever come.
        eos_token_ids=st.sampled_from([frozenset(), frozenset(range(0, vocab_size, 16))]),
        stop_token_sequences=st.sampled_from([(), tuple((token,) for token in range(1, vocab_size, 16))]),
        min_tokens=st.sampled_from([0, 0, 3, 12]),
        ignores_eos=st.sampled_from([False, False, True]),
    )


def _samplings(vocab_size: int) -> st.SearchStrategy[Sampling]:
    penalties = st.sampled_from([0.0, 3.0])
    repetition = st.sampled_from([1.0, 1.5])
    drawn = st.builds(
        Sampling,
        seed=st.integers(0, 2**64 - 1),
        temperature=st.sampled_from([0.5, 1.0, 2.0]),
        top_p=st.sampled_from([1.0, 0.9]),
        top_k=st.sampled_from([0, 20]),
        min_p=st.sampled_from([0.0, 0.05]),
        presence_penalty=penalties,
        frequency_penalty=penalties,
        logit_bias=st.sampled_from([(), ((vocab_size - 1, 2.0),)]),
        repetition_penalty=repetition,
    )
    greedy = st.builds(Sampling, presence_penalty=penalties, repetition_penalty=repetition)
    return st.just(Sampling()) | greedy | drawn
