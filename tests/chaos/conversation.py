"""What one session says: always the same, so that a disturbed session can be held against an undisturbed one."""

import random
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import kakeya

_NUM_TURNS = 4
_VOCABULARY = 1_000


@dataclass(frozen=True)
class Turn:
    """`then`: after the answer, nothing more, or the session is parked, or the answer is taken back and given again."""

    token_ids: tuple[int, ...]
    max_tokens: int
    seed: int
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
                    draw.choice(("nothing", "nothing", "park", "rewind")),
                )
                for _ in range(_NUM_TURNS)
            )
        )


@dataclass(frozen=True)
class Heard:
    """The answers to a script, and the history length at the end as the runtime says."""

    token_ids: tuple[tuple[int, ...], ...]
    history_length: int


async def hold(client: kakeya.AsyncClient, script: Script) -> Heard:
    """Holds a conversation and closes its session. Raises KakeyaError."""
    answers = []
    async with await client.create_session() as session:
        for turn in script.turns:
            generation = session.turn(turn.token_ids, max_tokens=turn.max_tokens, temperature=1.0, seed=turn.seed)
            answers.append(tuple(await generation.all()))
            if turn.then == "park":
                with suppress(kakeya.SnapshotStoreUnavailable):  # it stays as it is
                    await session.park()
            elif turn.then == "rewind":
                answers.append(await _again(session, turn, len(answers[-1])))
        length = (await session.info()).history_length
    return Heard(tuple(answers), length)


async def _again(session: kakeya.AsyncSession, turn: Turn, num_tokens: int) -> tuple[int, ...]:
    """Takes the answer to a turn back; the same options bring the same one."""
    end = (await session.info()).history_length
    await session.rewind(end - num_tokens)
    generation = session.generate(max_tokens=turn.max_tokens, temperature=1.0, seed=turn.seed)
    return tuple(await generation.all())
