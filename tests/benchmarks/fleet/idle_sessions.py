"""What calls cost beside a thousand, a hundred thousand and a million idle sessions; part of `make bench-scale`.

One session is opened, given a turn and parked, by calls. Redis then copies all that it has of it: each key that is
named after it, and each entry that names it. So the others are as real as that one, and some of them are resumed.
At each number a life is measured: a session is created, 30 tokens are appended, one answered, and it is closed. The
worker has no model (tests/benchmarks/calls/worker_without_model.py), and no snapshot store.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import redis

from kakeya_bench.compare.processes import cpu_seconds_of
from kakeya_bench.report.quantities import Precise, Seconds
from kakeya_bench.report.verdict import Verdict, at_most
from kakeya_bench.statistics.distribution import median
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.v1 import runtime_pb2_grpc
from tests.benchmarks.calls import worker_without_model
from tests.integration.processes import Runtime, runtime

NUM_APPENDED, NUM_ANSWERED = 30, 8
BOUND_RATIO = 1.3  # of what a life costs a router and Redis, and how long it takes
_NUM_WARM, _NUM_RESUMED = 50, 50
_AT_ONCE = 2_000
_LONG_SECONDS = 60.0

# ARGV: the session's id, the first and the last number of its copies, how many keys are named after it, these, and the
# entries that name it, each as its command, its key, and two values.
_COPY = """
local id, first, last, num_keys = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local prefix = string.match(id, '^.*%.')
local function renamed(text, name)
  local at = string.find(text, id, 1, true)
  return at and string.sub(text, 1, at - 1) .. name .. string.sub(text, at + #id) or text
end
for number = first, last do
  local name = prefix .. string.format('%022d', number)
  for i = 5, 4 + num_keys do
    redis.call('COPY', ARGV[i], renamed(ARGV[i], name))
  end
  for i = 5 + num_keys, #ARGV, 4 do
    local command = {ARGV[i], renamed(ARGV[i + 1], name), renamed(ARGV[i + 2], name)}
    if ARGV[i + 3] ~= '' then
      command[4] = renamed(ARGV[i + 3], name)
    end
    redis.call(unpack(command))
  end
end
"""


class Copies:
    """Of what a Redis has of a session.

    Attributes:
        number: how many there are, beside that session.
    """

    def __init__(self, store: redis.Redis, session_id: str) -> None:
        self.number = 0
        self._store, self._session_id = store, session_id
        keys = sorted(store.scan_iter("kakeya:*"))
        own = [key for key in keys if session_id in key]
        entries = [each for key in keys for each in self._entries(key)]
        self._what = [len(own), *own, *(part for entry in entries for part in entry)]

    def id_of(self, number: int) -> str:
        return f"{self._session_id.rpartition('.')[0]}.{number:022d}"

    def grow(self, number: int) -> None:
        """To so many."""
        for first in range(self.number + 1, number + 1, _AT_ONCE):
            last = min(number, first + _AT_ONCE - 1)
            self._store.eval(_COPY, 0, self._session_id, first, last, *self._what)
        self.number = max(self.number, number)

    def _entries(self, key: str) -> Iterator[tuple[str, str, str, str]]:
        """How each entry is written that names the session, in a list that spans sessions or in what is its own."""
        store, names = self._store, f"*{self._session_id}*"
        match store.type(key):
            case "zset":
                yield from (("ZADD", key, repr(score), member) for member, score in store.zscan_iter(key, match=names))
            case "set":
                yield from (("SADD", key, member, "") for member in store.sscan_iter(key, match=names))
            case "hash":
                held = store.hscan_iter(key)
                yield from (("HSET", key, name, value) for name, value in held if self._session_id in name + value)


async def parked(stub: Any) -> str:
    """A session that has had a turn."""
    session_id = await _begun(stub, NUM_ANSWERED, ttl_seconds=86_400)
    await stub.ParkSession(api.ParkSessionRequest(session_id=session_id), timeout=_LONG_SECONDS)
    return session_id


async def _begun(stub: Any, num_answered: int, **fields: Any) -> str:
    created = await stub.CreateSession(api.CreateSessionRequest(**fields), timeout=_LONG_SECONDS)
    session_id, token_ids = str(created.session_id), range(1, NUM_APPENDED + 1)
    await stub.AppendTokens(api.AppendTokensRequest(session_id=session_id, token_ids=token_ids), timeout=_LONG_SECONDS)
    async for _ in stub.Generate(api.GenerateRequest(session_id=session_id, max_tokens=num_answered)):
        pass
    return session_id


async def live(stub: Any, number: int) -> list[float]:
    """The seconds of so many lives, one after the other."""
    seconds = []
    for _ in range(number):
        began = time.perf_counter()
        session_id = await _begun(stub, 1)
        await stub.CloseSession(api.CloseSessionRequest(session_id=session_id), timeout=_LONG_SECONDS)
        seconds.append(time.perf_counter() - began)
    return seconds


async def resume(stub: Any, copies: Copies, number: int) -> list[float]:
    """The seconds of appends to so many that are parked, each of which is parked again."""
    seconds = []
    for each in random.sample(range(1, copies.number + 1), min(number, copies.number)):
        session_id, began = copies.id_of(each), time.perf_counter()
        await stub.AppendTokens(api.AppendTokensRequest(session_id=session_id, token_ids=[1]), timeout=_LONG_SECONDS)
        seconds.append(time.perf_counter() - began)
        await stub.ParkSession(api.ParkSessionRequest(session_id=session_id), timeout=_LONG_SECONDS)
    return seconds


async def measured(
    made: Runtime, numbers: Sequence[int], num_lives: int, idle_seconds: float, step: Callable[[str], None]
) -> dict[str, Any]:
    found = {}
    with redis.Redis.from_url(made.redis.url, protocol=2, decode_responses=True) as store:
        pids = made.routers[0].process.pid, int(store.info("server")["process_id"])
        async with grpc.aio.insecure_channel(made.address) as channel:
            stub = runtime_pb2_grpc.RuntimeServiceStub(channel)
            await live(stub, _NUM_WARM)
            copies = Copies(store, await parked(stub))
            empty_bytes = int(store.info("memory")["used_memory"])
            for number in numbers:
                await asyncio.to_thread(copies.grow, number)
                used_bytes = int(store.info("memory")["used_memory"]) - empty_bytes
                router, of_redis, _ = await _spent(pids, asyncio.sleep(idle_seconds))
                shares = {"router_core_share": router / idle_seconds, "redis_core_share": of_redis / idle_seconds}
                router, of_redis, seconds = await _spent(pids, live(stub, num_lives))
                found[f"{number:,} idle sessions"] = {
                    "router_ms_a_life": Precise(1e3 * router / num_lives),
                    "redis_ms_a_life": Precise(1e3 * of_redis / num_lives),
                    "life_p50": Seconds(median(seconds)),
                    "resume_p50": Seconds(median(await resume(stub, copies, _NUM_RESUMED))),
                    "redis_bytes_a_session": used_bytes / number,
                    **shares,
                }
                step(f"{number:,} idle sessions")
    return found


async def _spent(pids: Sequence[int], work: Any) -> tuple[float, float, Any]:
    """The processor seconds of two processes meanwhile, and what came of the work."""
    before = [*map(cpu_seconds_of, pids)]
    came = await work
    router, of_redis = (cpu_seconds_of(pid) - each for pid, each in zip(pids, before, strict=True))
    return router, of_redis, came


def of_idle_sessions(
    directory: Path, numbers: Sequence[int], num_lives: int, idle_seconds: float, step: Callable[[str], None]
) -> dict[str, Any]:
    """By number; see the module."""
    directory.mkdir()
    flags = ("--metrics-bind=none", "--log-level=warning")
    with (
        runtime(directory, directory, num_workers=0, router_flags=flags) as made,
        worker_without_model.joining([made]),
    ):
        return asyncio.run(measured(made, sorted(numbers), num_lives, idle_seconds, step))


def verdicts(found: Mapping[str, Mapping[str, Any]]) -> list[Verdict]:
    """Of the largest number, held against the smallest."""
    least, *_, most = found.values()
    gates = ("router_ms_a_life", "redis_ms_a_life", "life_p50")
    ratios = {gate: Precise(float(most[gate]) / float(least[gate])) for gate in gates}
    return [at_most(f"idle sessions, {gate}", "ratio", ratio, Precise(BOUND_RATIO)) for gate, ratio in ratios.items()]
