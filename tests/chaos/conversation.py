"""What one session says: always the same, so that a disturbed session can be held against an undisturbed one."""

import random
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import kakeya

_NUM_TURNS = 4
_VOCABULARY = 1_000


@dataclass(frozen=True)
class Turn:
    """`logprobs`: for how many of the likeliest ids; None: no details are asked for. `then`: after the answer, nothing
    more, or the session is parked, or the answer is taken back and given again.
    """

    token_ids: tuple[int, ...]
    max_tokens: int
    seed: int
    logprobs: int | None
    then: Literal["nothing", "park", "rewind"]


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
                    draw.choice(("nothing", "nothing", "park", "rewind")),
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


async def hold(client: kakeya.AsyncClient, script: Script) -> Heard:
    """Holds a conversation and closes its session. Raises KakeyaError."""
    answers = []
    async with await client.create_session() as session:
        for turn in script.turns:
            answers.append(await _whole(session.turn(turn.token_ids, **_options(turn))))
            if turn.then == "park":
                with suppress(kakeya.SnapshotStoreUnavailable):  # it stays as it is
                    await session.park()
            elif turn.then == "rewind":
                answers.append(await _again(session, turn, len(answers[-1].token_ids)))
        length = (await session.info()).history_length
    return Heard(tuple(answers), length)


async def _again(session: kakeya.AsyncSession, turn: Turn, num_tokens: int) -> Answer:
    """Takes the answer to a turn back; the same options bring the same one."""
    end = (await session.info()).history_length
    await session.rewind(end - num_tokens)
    return await _whole(session.generate(**_options(turn)))


def _options(turn: Turn) -> dict[str, Any]:
    return {"max_tokens": turn.max_tokens, "temperature": 1.0, "seed": turn.seed, "logprobs": turn.logprobs}


async def _whole(generation: kakeya.AsyncGeneration) -> Answer:
    return Answer(tuple(await generation.all()), tuple(generation.details))
