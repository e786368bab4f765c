"""Batches of hostile calls, a look at the runtime after each, and a census at the end."""

import asyncio
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import grpc

from kakeya_shared.settings.service import setting
from kakeya_stubs.admin.v1.admin_pb2 import SCOPE_ADMIN
from tests.integration.credentials import operator_of
from tests.integration.leftovers import num_keys
from tests.integration.processes import Runtime, asking_for_keys, bearer, runtime
from tests.random_checkpoint import save_random_checkpoint
from tests.soak.fuzz.attempts import Credentials, attempt
from tests.soak.fuzz.caller import Caller
from tests.soak.fuzz.known import Known
from tests.soak.fuzz.orders import Orders
from tests.soak.fuzz.request_bytes import ROUTER_MESSAGE_BYTES, WORKER_MESSAGE_BYTES
from tests.soak.fuzz.valid_requests import FUZZ_POOL, FUZZ_TENANT
from tests.soak.fuzz.witness import TurnWitness
from tests.soak.process_watch import ProcessWatch
from tests.soak.progress import Progress
from tests.soak.proof import SeededProof
from tests.soak.report import Report
from tests.soak.run import Run

_ROUTER_FLAGS = (
    *("--session-ttl-seconds=8", "--parked-ttl-seconds=8", "--reap-interval-seconds=0.2"),
    *("--heartbeat-interval-seconds=0.2", "--queue-seconds=0.5", "--queue-length=8"),
    *("--max-append-tokens=4096", f"--max-message-bytes={ROUTER_MESSAGE_BYTES}"),
)
# Exact, since the witness compares bits.
_WORKER_FLAGS = ("--weights=int8", f"--max-message-bytes={WORKER_MESSAGE_BYTES}")
_NUM_LANES = 20
_BATCH_CALLS = 2_000
_NUM_AT_ONCE = 32
_ORDER_SHARE = 0.03
_WITNESS_PAUSE_SECONDS = 0.05
_MAX_KEYS = 2_000
_LEFTOVER_SECONDS = 30.0
# An allocator that has seen messages of some MiB keeps some of it; a leak of 1 KB a call would exceed this bound within
# the 100,000 calls of a whole run.
_MAX_GROWTH_BYTES = 96 << 20


class Fuzz(SeededProof):
    """Hostile calls on a runtime of real processes: nothing may break, leak, or show in what others get. Exits with 1
    when something happened that must not. The seed decides what call n sends, as far as that does not depend on
    answers.
    """

    SEED: ClassVar = "FUZZ_SEED"
    model_config = SeededProof.named("fuzz")

    calls: int = setting(100_000, "how many calls", unit="calls", reason="a leak of 1 KB a call is seen then", ge=1)

    def prove(self, directory: Path, progress: Progress) -> Report:
        """Two routers, since any router serves any session, and one worker."""
        model = save_random_checkpoint(directory / "demo")
        environment = asking_for_keys()
        with runtime(model, directory, num_workers=0, router_flags=_ROUTER_FLAGS, environment=environment) as made:
            made.start_router(*_ROUTER_FLAGS)
            made.start_worker(*_WORKER_FLAGS, lanes=_NUM_LANES)
            made.wait_for_workers(1)
            return asyncio.run(FuzzRun(self, made, progress).run())


class FuzzRun(Run):
    def __init__(self, asked: Fuzz, made: Runtime, progress: Progress) -> None:
        super().__init__(made, progress)
        self._asked = asked
        with operator_of(made) as operator:
            self._credentials = Credentials(
                sessions=operator.make_key(FUZZ_TENANT),
                admin=operator.make_key(FUZZ_TENANT, SCOPE_ADMIN),
                join=operator.make_token(FUZZ_POOL),
            )
            self._witness_key = operator.make_key("witness")
        worker, (address,) = made.list_workers()[0], (each.address for each in made.workers)
        self._known = Known(worker.model, worker.vocab_size, ["127.0.0.1:1", made.address, address])
        self.watch = ProcessWatch(made, self._known.at_worker)
        self._memory: dict[str, int] = {}  # after the first batch
        self._most_keys = 0
        self.begin(asked.calls, "calls")

    async def run(self) -> Report:
        """Ends early after the first batch in which something happened that must not."""
        started = time.monotonic()
        self._caller = Caller(self.made, self._known, self.tally)
        self._orders = Orders(self._caller, self._known, self._credentials)
        async with grpc.aio.insecure_channel(self.made.address) as channel:
            witness, again = (TurnWitness(channel, bearer(self._witness_key), self._known.model) for _ in range(2))
            await self._beside(witness)
            seconds = time.monotonic() - started
            await self._orders.close_long_lived()
            while len(again.answers) < len(witness.answers):
                await again.ask()  # the same turns, with nobody beside it
            await again.close()
        self.tally.violate(*witness.differences(again.answers), kind="the witness")
        await self._caller.aclose()
        with operator_of(self.made) as operator:
            operator.revoke_all()
        await asyncio.to_thread(self.leave_nothing, _LEFTOVER_SECONDS)
        self.read_logs()
        return self._report(witness, seconds)

    async def _beside(self, witness: TurnWitness) -> None:
        """All batches, while the witness takes its turns."""
        self._known.foreign = witness.sessions
        stop = asyncio.Event()
        turns = asyncio.create_task(witness.run(stop, _WITNESS_PAUSE_SECONDS))
        numbers = range(self._asked.calls)
        for start in range(0, self._asked.calls, _BATCH_CALLS):
            await self._batch(iter(numbers[start : start + _BATCH_CALLS]))
            self._look()
            if turns.done() or self.tally.num_violations:
                break
        stop.set()
        try:
            await turns
            await witness.close()
        except Exception as error:
            self.tally.violate(f"the witness, which behaves, was told {error!r} in turn {len(witness.answers)}")

    async def _batch(self, numbers: Iterator[int]) -> None:
        async def call_on() -> None:
            seed = self._asked.seed
            for number in numbers:
                chance = random.Random(f"{seed}/{number}/order")
                if chance.random() < _ORDER_SHARE:
                    await self._orders.run(chance)
                else:
                    await self._caller.perform(attempt(seed, number, self._known, self._credentials))
                await self._orders.trim(chance)

        async with asyncio.TaskGroup() as group:
            for _ in range(_NUM_AT_ONCE):
                group.create_task(call_on())

    def _look(self) -> None:
        """After a batch: what happened to the processes, and how much Redis holds."""
        self.read_logs()
        self._most_keys = max(self._most_keys, num_keys(self.made))
        if self._most_keys > _MAX_KEYS:
            self.tally.violate(f"Redis holds {self._most_keys} keys", kind="keys")
        self._memory = self._memory or self.watch.resident_bytes()

    def _report(self, witness: TurnWitness, seconds: float) -> Report:
        tally, memory = self.tally, self.watch.resident_bytes()
        growth = {name: size - self._memory[name] for name, size in memory.items()}
        for name, size in growth.items():
            if size > _MAX_GROWTH_BYTES:
                tally.violate(f"{name} grew from {self._memory[name]} to {memory[name]} bytes")
        return self.report(
            {
                "seed": self._asked.seed,
                "calls": tally.num_counted,
                "seconds": round(seconds, 1),
                "calls_per_second": round(tally.num_counted / seconds, 1),
                "by_status": tally.by_outcome(),
                "by_kind": dict(tally.kinds.most_common()),
                "by_method": tally.by_what(),
                "witness_turns": len(witness.answers),
                "witness_refusals": witness.num_refused,
                "resident_bytes_growth": growth,
                "resident_bytes_growth_bound": _MAX_GROWTH_BYTES,
                "resident_bytes_after": memory,
                "most_redis_keys": self._most_keys,
            }
        )
