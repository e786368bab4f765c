"""What one session says: always the same, so that a disturbed session can be held against an undisturbed one."""

import linecache
import random
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import kakeya

_NUM_TURNS = 4
_VOCABULARY = 1_000
_LIKELY = {7: 30.0, 8: 30.0, 9: 30.0}

Then = Literal["nothing", "park", "rewind", "fork", "fork earlier"]
OnFork = Callable[[kakeya.AsyncSession], Awaitable[None]]


@dataclass(frozen=True)
class Turn:
    """What is appended, and how it is answered.

    Attributes:
        logprobs: for how many of the likeliest ids; None: no details are asked for.
        says_little: it has few tokens to choose from, so that what it says comes again and can be drafted.
        then: after the answer, nothing more, or the session is parked, or the answer is taken back and given again, or
            the conversation goes on in a fork of the session, which begins at its end or where the answer began, and is
            closed then.
    """

    token_ids: tuple[int, ...]
    max_tokens: int
    seed: int
    logprobs: int | None
    says_little: bool
    then: Then

    @property
    def options(self) -> dict[str, Any]:
        options = {"max_tokens": self.max_tokens, "temperature": 1.0, "seed": self.seed, "logprobs": self.logprobs}
        return options | ({"logit_bias": _LIKELY} if self.says_little else {})


def script(number: int) -> list[Turn]:
    """The turns of a session; scripts of one number are equal."""
    draw = random.Random(number)
    return [
        Turn(
            tuple(draw.randrange(_VOCABULARY) for _ in range(draw.randint(1, 120))),
            draw.randint(1, 160),
            draw.getrandbits(63),
            draw.choice((None, None, 0, 2)),
            draw.random() < 0.5,
            draw.choice(("nothing", *get_args(Then))),
        )
        for _ in range(_NUM_TURNS)
    ]


@dataclass(frozen=True)
class Answer:
    token_ids: tuple[int, ...]
    details: tuple[kakeya.TokenDetail, ...]
    num_accepted: int


@dataclass(frozen=True)
class Heard:
    """The answers to a script, and the history length at the end as the runtime says.

    Attributes:
        num_accepted: drafts that were right, as far as the runtime says.
    """

    answers: tuple[Answer, ...]
    history_length: int
    num_accepted: int


async def hold(
    client: kakeya.AsyncClient,
    turns: Sequence[Turn],
    on_fork: OnFork | None = None,
    *,
    in_one_call: bool = False,
    speculation: str = "none",
) -> Heard:
    """Holds a conversation and closes its session. Raises KakeyaError.

    Args:
        on_fork: awaited before the first turn of each fork, with that.
        in_one_call: each turn is one, and the first opens the session, too; else each part of it is.
        speculation: what drafts for the session and its forks.
    """
    answers = []
    async with AsyncExitStack() as sessions:
        created = None if in_one_call else await client.create_session(speculation=speculation)
        session = None if created is None else await sessions.enter_async_context(created)
        for turn in turns:
            if session is None:
                generation = client.turn(turn.token_ids, ephemeral=False, speculation=speculation, **turn.options)
                sessions.push_async_exit(partial(_close, generation))
            elif in_one_call:
                generation = session.turn(turn.token_ids, **turn.options)
            else:
                await session.append(turn.token_ids)
                generation = session.generate(**turn.options)
            answers.append(await _whole(generation))
            session = generation.session
            assert session is not None, "one that has answered has a session"
            if turn.then in ("fork", "fork earlier"):
                boundary = _start(session, answers[-1]) if turn.then == "fork earlier" else None
                fork = await client.create_session(fork_from=session, boundary=boundary)
                await session.close()
                session = await sessions.enter_async_context(fork)
                if on_fork is not None:
                    await on_fork(session)
            elif turn.then == "park":
                with suppress(kakeya.SnapshotStoreUnavailable):  # it stays as it is
                    await session.park()
            elif turn.then == "rewind":
                await session.rewind(_start(session, answers[-1]))
            if turn.then in ("fork earlier", "rewind"):  # the same options bring the same answer
                answers.append(await _whole(session.generate(**turn.options)))
        assert session is not None, "there are turns"
        length = (await session.info()).history_length
        if length != session.history_length:  # its next operation would be told so
            raise kakeya.HistoryLengthMismatch(f"the history has {length} tokens, not {session.history_length}")
    return Heard(tuple(answers), length, sum(answer.num_accepted for answer in answers))


def where(error: kakeya.KakeyaError) -> tuple[str, str]:
    """The id of the session that it ended, "" if there was none yet, and the call of `hold` that raised it."""
    frame, line = next(each for each in traceback.walk_tb(error.__traceback__) if each[0].f_code is hold.__code__)
    session = frame.f_locals.get("session")
    return session.id if session else "", linecache.getline(__file__, line).strip()


async def _close(generation: kakeya.AsyncGeneration, *failure: Any) -> None:
    """The session that a turn has opened, if it came so far."""
    if generation.session is not None:
        await generation.session.__aexit__(*failure)


def _start(session: kakeya.AsyncSession, answer: Answer) -> int:
    """The history length at which the last answer began, as its client counts: Redis may have been set back since."""
    if session.history_length is None:
        raise AssertionError("a session whose answer has come to its end knows its length")
    return session.history_length - len(answer.token_ids)


async def _whole(generation: kakeya.AsyncGeneration) -> Answer:
    token_ids = tuple(await generation.all())
    return Answer(token_ids, tuple(generation.details), generation.done.num_accepted_tokens if generation.done else 0)


def difference(heard: Heard, expected: Heard) -> str:
    """In words; empty: there is none."""
    for turn, (one, other) in enumerate(zip(heard.answers, expected.answers, strict=True)):
        if one.token_ids != other.token_ids:
            lengths = len(one.token_ids), len(other.token_ids)
            pairs = enumerate(zip(one.token_ids, other.token_ids, strict=False))
            first = next((number for number, (token, due) in pairs if token != due), min(lengths))
            return f"turn {turn} differs from token {first} on ({lengths[0]}, expected {lengths[1]})"
        if len(one.details) != len(other.details):
            return f"turn {turn} has {len(one.details)} details, expected {len(other.details)}"
        for number, (detail, due) in enumerate(zip(one.details, other.details, strict=True)):
            # That of a token which was on its way when something broke is nowhere.
            if detail.logprob is not None and detail != due:
                return f"turn {turn} differs in what token {number} was chosen from: {detail}, expected {due}"
    if heard.history_length != expected.history_length:
        return f"the history has {heard.history_length} tokens, expected {expected.history_length}"
    return ""
