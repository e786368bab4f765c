"""What one session says: always the same, so that a disturbed session can be held against an undisturbed one."""

import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

import kakeya

_NUM_TURNS = 4
_VOCABULARY = 1_000

Then = Literal["nothing", "park", "rewind", "fork", "fork earlier"]
OnFork = Callable[[kakeya.AsyncSession], Awaitable[None]]


@dataclass(frozen=True)
class Turn:
    """`logprobs`: for how many of the likeliest ids; None: no details are asked for. `then`: after the answer, nothing
    more, or the session is parked, or the answer is taken back and given again, or the conversation goes on in a fork
    of the session, which begins at its end or where the answer began, and is closed then.
    """

    token_ids: tuple[int, ...]
    max_tokens: int
    seed: int
    logprobs: int | None
    then: Then


@dataclass(frozen=True)
class Script:
    """The turns of a session; scripts of one number are equal."""

    turns: tuple[Turn, ...]

    @staticmethod
    def of(number: int) -> "Script":
        draw = random.Random(number)
        return Script(
            tuple(
                Turn(
                    tuple(draw.randrange(_VOCABULARY) for _ in range(draw.randint(1, 120))),
                    draw.randint(1, 160),
                    draw.getrandbits(63),
                    draw.choice((None, None, 0, 2)),
                    draw.choice(("nothing", *get_args(Then))),
                )
                for _ in range(_NUM_TURNS)
            )
        )


@dataclass(frozen=True)
class Answer:
    token_ids: tuple[int, ...]
    details: tuple[kakeya.TokenDetail, ...]


@dataclass(frozen=True)
class Heard:
    """The answers to a script, and the history length at the end as the runtime says."""

    answers: tuple[Answer, ...]
    history_length: int


async def hold(client: kakeya.AsyncClient, script: Script, on_fork: OnFork) -> Heard:
    """Holds a conversation and closes its session. Raises KakeyaError.

    Args:
        on_fork: awaited before the first turn of each fork, with that.
    """
    answers = []
    async with AsyncExitStack() as sessions:
        session = await sessions.enter_async_context(await client.create_session())
        for turn in script.turns:
            answers.append(await _whole(session.turn(turn.token_ids, **_options(turn))))
            if turn.then in ("fork", "fork earlier"):
                is_earlier = turn.then == "fork earlier"
                boundary = _start(session, answers[-1]) if is_earlier else None
                fork = await client.create_session(fork_from=session, boundary=boundary)
                await session.close()
                session = await sessions.enter_async_context(fork)
                await on_fork(session)
                if is_earlier:
                    answers.append(await _whole(session.generate(**_options(turn))))
            elif turn.then == "park":
                with suppress(kakeya.SnapshotStoreUnavailable):  # it stays as it is
                    await session.park()
            elif turn.then == "rewind":
                answers.append(await _again(session, turn, answers[-1]))
        length = (await session.info()).history_length
        if length != session.history_length:  # its next operation would be told so
            raise kakeya.HistoryLengthMismatch(f"the history has {length} tokens, not {session.history_length}")
    return Heard(tuple(answers), length)


def _start(session: kakeya.AsyncSession, answer: Answer) -> int:
    """The history length at which the last answer began, as its client counts: Redis may have been set back since."""
    if session.history_length is None:
        raise AssertionError("a session whose answer has come to its end knows its length")
    return session.history_length - len(answer.token_ids)


async def _again(session: kakeya.AsyncSession, turn: Turn, answer: Answer) -> Answer:
    """Takes the answer to a turn back; the same options bring the same one."""
    await session.rewind(_start(session, answer))
    return await _whole(session.generate(**_options(turn)))


def _options(turn: Turn) -> dict[str, Any]:
    return {"max_tokens": turn.max_tokens, "temperature": 1.0, "seed": turn.seed, "logprobs": turn.logprobs}


async def _whole(generation: kakeya.AsyncGeneration) -> Answer:
    return Answer(tuple(await generation.all()), tuple(generation.details))
