"""What a session takes in Redis and in the snapshot store does not grow with its turns, only with what it keeps."""

import asyncio
import json
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from itertools import chain
from pathlib import Path

import pytest
import redis

import kakeya
from kakeya_router.store.sessions.session_store import BYTES_PER_TOKEN
from tests.integration.processes import Runtime, eventually, runtime

NUM_SESSIONS, NUM_TURNS = 2, 2_000
# Lengths have five digits all along: they stand in records and in names of files.
FIRST_TOKENS = 10_000
NEW_TOKENS, MAX_TOKENS = 4, 3
# Of whole snapshots and those that follow them there is one round in about ten turns: samples hit all places of it.
TURNS_A_SAMPLE = 7
WARM_TURNS, HALF_TURNS = 200, 1_000
# On a busy host a turn or two are not written by themselves; a history is 1.41 times as long at the end as at half.
MOST_RATIO = 1.35
# A journal goes back to the snapshot before the oldest of four boundaries; so few turns are no measure of growth.
JOURNALED_TURNS = 10


@dataclass(frozen=True)
class State:
    """What there is of a session with no turn under way; `num_keys` is of all Redis, which rounds `redis_bytes` up."""

    num_keys: int
    redis_bytes: int
    journal_bytes: int
    num_files: int
    file_bytes: int


class States:
    """Looks at Redis and at the snapshot store.

    Args:
        directory: of the store.
    """

    def __init__(self, client: "redis.Redis", directory: Path) -> None:
        self._redis = client
        self._directory = directory

    def is_settled(self, session: kakeya.AsyncSession) -> bool:
        """Whether the last turn's snapshot is the session's newest, and there are no files but those on record."""
        record = self._redis.hget(_key("session", session.id), "snapshots")
        on_record = {name: length for name, _, length, _ in json.loads(record or "[]")}
        there = {str(path.relative_to(self._directory)) for path in self._files(session)}
        return there == on_record.keys() and session.history_length in on_record.values()

    def now(self, session: kakeya.AsyncSession) -> State:
        keys = list(self._redis.scan_iter(f"*{session.id}*"))
        journal = _key("journal", session.id)
        assert {_key("session", session.id).encode(), journal.encode()} <= {*keys}
        redis_bytes = sum(self._redis.memory_usage(key, samples=0) or 0 for key in keys)
        sizes = [path.stat().st_size for path in self._files(session)]
        return State(self._redis.dbsize(), redis_bytes, self._redis.strlen(journal), len(sizes), sum(sizes))

    def _files(self, session: kakeya.AsyncSession) -> list[Path]:
        return list(self._directory.glob(f"*/{session.id}*"))


def _key(kind: str, session_id: str) -> str:
    return f"kakeya:{{{session_id.partition('.')[0]}}}:{kind}:{session_id}"


@pytest.fixture
def made(model: Path, tmp_path: Path) -> Iterator[Runtime]:
    environment = {"KAKEYA_WORKER_SNAPSHOTS": str(tmp_path / "snapshots")}
    with runtime(model, tmp_path, num_workers=1, environment=environment) as made:
        yield made


@pytest.fixture
def states(made: Runtime, tmp_path: Path) -> Iterator[States]:
    with redis.Redis.from_url(made.redis.url, protocol=2) as client:
        yield States(client, tmp_path / "snapshots")


@pytest.mark.heavy
@pytest.mark.timeout(1800)
async def test_two_thousand_turns_leave_no_more_than_two_hundred(made: Runtime, states: States) -> None:
    found: dict[int, list[State]] = {}
    async with kakeya.AsyncClient(made.address) as client:
        sessions = [await client.create_session() for _ in range(NUM_SESSIONS)]
        for session in sessions:
            await session.append([number % 512 for number in range(FIRST_TOKENS)])
        for turn in range(NUM_TURNS):
            await asyncio.gather(*(_turn(session, turn) for session in sessions))
            if turn % TURNS_A_SAMPLE == 0:
                await asyncio.gather(*(_settle(states, session) for session in sessions))
                found[turn] = [await asyncio.to_thread(states.now, session) for session in sessions]
        for session in sessions:
            assert session.history_length == FIRST_TOKENS + NUM_TURNS * (NEW_TOKENS + MAX_TOKENS)
    early = _most(states for turn, states in found.items() if WARM_TURNS <= turn < HALF_TURNS)
    late = _most(states for turn, states in found.items() if turn >= HALF_TURNS)
    print(early, late)
    assert max(early.journal_bytes, late.journal_bytes) <= JOURNALED_TURNS * (NEW_TOKENS + MAX_TOKENS) * BYTES_PER_TOKEN
    for name in ("num_keys", "redis_bytes", "num_files", "file_bytes"):
        assert getattr(late, name) <= MOST_RATIO * getattr(early, name), name


async def _turn(session: kakeya.AsyncSession, number: int) -> None:
    await session.append([(number + offset) % 512 for offset in range(NEW_TOKENS)])
    assert len(await session.generate(max_tokens=MAX_TOKENS).all()) == MAX_TOKENS


async def _settle(states: States, session: kakeya.AsyncSession) -> None:
    async def is_settled() -> bool:
        return await asyncio.to_thread(states.is_settled, session)

    await eventually(is_settled, "the turn's snapshot is the newest, and all files are on record")


def _most(found: Iterable[list[State]]) -> State:
    """The most of each, of any session at any time."""
    return State(*map(max, zip(*map(astuple, chain(*found)), strict=True)))
