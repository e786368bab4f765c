"""What Redis says of the line and of the lanes while clients come and go."""

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import redis.asyncio

from kakeya_router.store.keys import PoolKeys
from kakeya_router.store.session_record import PoolName, SessionId, WorkerId
from kakeya_router.store.sessions.session_changes import INTERRUPTED
from tests.soak.report import Tally

_SAMPLE_SECONDS = 0.05


class RoomWatch:
    """Attributes:
    longest_line: in members.
    longest_missed_seconds: the longest time in which all samples showed somebody waiting beside a free lane, and in
        which nobody got in: while callers get in one after the other, there is always a lane on its way to one.
    """

    def __init__(self, url: str, pool: str, num_admitted: Callable[[], int]) -> None:
        self._redis = redis.asyncio.Redis.from_url(url, decode_responses=True, protocol=2)
        self._keys = PoolKeys(PoolName(pool))
        self._num_admitted = num_admitted
        self.longest_line = 0
        self.longest_missed_seconds = 0.0
        self.num_samples = 0

    async def run(self) -> None:
        """Until cancelled."""
        missed_since: float | None = None
        admitted = -1
        async with self._redis:
            workers = [
                self._keys.worker(WorkerId(str(name))) for name in await self._redis.zrange(self._keys.workers, 0, -1)
            ]
            while True:
                line, free = await self._sample(workers)
                now = time.monotonic()
                if not (line and free) or admitted != self._num_admitted():
                    missed_since, admitted = None, self._num_admitted()
                if line and free:
                    missed_since = missed_since or now
                    self.longest_missed_seconds = max(self.longest_missed_seconds, now - missed_since)
                self.longest_line = max(self.longest_line, line)
                self.num_samples += 1
                await asyncio.sleep(_SAMPLE_SECONDS)

    async def _sample(self, workers: list[str]) -> tuple[int, int]:
        """Members in the line and free lanes at one moment."""
        async with self._redis.pipeline(transaction=True) as batch:
            batch.zcard(self._keys.queue)
            for worker in workers:
                batch.hmget(worker, "slab_bytes", "reserved_bytes", "lane_bytes")
            line, *ledgers = await batch.execute()
        return line, sum((int(slab) - int(reserved)) // int(lane) for slab, reserved, lane in ledgers)


_LINE = re.compile(rb'^\+[\d.]+ \[\d+ (?P<source>[^\]]+)\] (?P<words>".*)$')
_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"')
_CHANGES = (b'"ZADD"', b'"ZREM"', b'"HINCRBY"', b'"HSET"', b'"HDEL"')


@dataclass
class Block:
    """What one script has done.

    Attributes:
        session_tenant: of the session that it reserved; None: none.
        left: members that left the line after that.
    """

    session_tenant: str | None = None
    left: list[str] = field(default_factory=list)


class LineWatch:
    """The order in which callers get in. Use as a context manager. Members of the line are "TENANT|ticket|waiter id".

    Redis' MONITOR tells every command, those of scripts included, one script after the other. A script that reserves a
    session for a caller out of the line writes the session's record and then takes the caller's member out of the line;
    for one that did not wait it writes the record alone.

    It is a violation to reserve a session while somebody of the same tenant stands in the line before, or while a
    tenant with fewer bytes, or as few and an older ticket, has somebody in it. And to let a newcomer into a full line;
    one that comes back from a worker that did not take it, or whose worker was lost, has its place in any case.

    Attributes:
        num_admitted: sessions reserved, and `num_waited` of them for callers out of the line.
        byte_seconds: by tenant, what it has held until its last change, times how long.
    """

    def __init__(self, url: str, pool: str, tally: Tally, *, queue_length: int) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 6379
        keys = PoolKeys(PoolName(pool))
        self._queue, self._usage, self._session = keys.queue, keys.usage, keys.session(SessionId(""))
        self._line: set[str] = set()
        self._queue_length = queue_length
        self._last_ticket = ""
        self._bytes: defaultdict[str, int] = defaultdict(int)
        self._before: dict[str, int] = {}
        self._block = Block()
        self._since: defaultdict[str, float] = defaultdict(time.monotonic)
        self.byte_seconds: defaultdict[str, float] = defaultdict(float)
        self.num_admitted = self.num_waited = 0
        self._tally = tally

    async def __aenter__(self) -> "LineWatch":
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port, limit=1 << 22)
        self._writer.write(b"MONITOR\r\n")
        assert await self._reader.readline() == b"+OK\r\n"
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reading.cancel()
        self._writer.close()

    @property
    def running(self) -> bool:
        return not self._reading.done()

    async def _read(self) -> None:
        while line := await self._reader.readline():
            self.hear(line)

    def hear(self, line: bytes) -> None:
        """One line of MONITOR."""
        match = _LINE.match(line.rstrip())
        if match is None:
            return
        if match["source"] != b"lua":
            self._end_block()
        elif match["words"].startswith(_CHANGES):
            self._follow(_WORD.findall(match["words"].decode(errors="replace")))

    def _follow(self, words: list[str]) -> None:
        match words:
            case ["ZADD", self._queue, *scores_and_members]:
                for member in scores_and_members[1::2]:
                    self._enter(member)
            case ["ZREM", self._queue, *members]:  # of one that leaves, or of all whose leases have lapsed
                self._line.difference_update(members)
                self._block.left += members
            case ["HINCRBY", self._usage, name, amount]:
                self._use(name, self._bytes.get(_tenant(name), 0) + int(amount))
            case ["HSET", self._usage, *names_and_values]:  # as the ledger is repaired
                for name, value in zip(names_and_values[::2], names_and_values[1::2], strict=True):
                    self._use(name, int(value))
            case ["HDEL", self._usage, *names]:  # of those that came to zero, or below it
                for name in names:
                    self._use(name, 0)
            case ["HSET", key, "session_id", *rest] if key.startswith(self._session):
                tenant = rest[rest.index("tenant") + 1]
                self._block = Block(tenant)
                self._before = dict(self._bytes)

    def _enter(self, member: str) -> None:
        if _ticket(member) > self._last_ticket:
            self._last_ticket = _ticket(member)
            if len(self._line) >= self._queue_length and _tenant(member) != INTERRUPTED:
                self._tally.violate(f"{member!r} came into a line of {len(self._line)}", kind="too long")
        self._line.add(member)

    def _use(self, name: str, amount: int) -> None:
        """A field of what tenants use has this value now."""
        if not name.endswith("|bytes"):
            return
        tenant, now = _tenant(name), time.monotonic()
        self.byte_seconds[tenant] += self._bytes[tenant] * (now - self._since[tenant])
        self._since[tenant] = now
        self._bytes[tenant] = amount

    def _end_block(self) -> None:
        block, self._block = self._block, Block()
        if block.session_tenant is None:
            return
        self.num_admitted += 1
        self.num_waited += len(block.left)
        ticket = _ticket(block.left[0]) if block.left else "~"  # above every ticket: it has only just come
        own = [member for member in self._line if _tenant(member) == block.session_tenant and _ticket(member) < ticket]
        if own:
            who = f"{block.left or 'a newcomer'} of {block.session_tenant!r}"
            self._tally.violate(f"{who} before {min(own)!r}", kind="overtaken")
        place = (self._before.get(block.session_tenant, 0), ticket)
        for member in self._line:
            tenant = _tenant(member)
            if tenant != block.session_tenant and (self._before.get(tenant, 0), _ticket(member)) < place:
                self._tally.violate(f"{block.session_tenant!r} at {place} before {member!r}", kind="unjust")
                break


def _tenant(member: str) -> str:
    return member.split("|")[0]


def _ticket(member: str) -> str:
    return member.split("|")[1]
