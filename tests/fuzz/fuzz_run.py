"""One run: batches of hostile calls, a look at the runtime after each, and a census at the end."""

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import grpc

from kakeya_stubs.admin.v1.admin_pb2 import SCOPE_ADMIN
from tests.fuzz.attempts import attempt
from tests.fuzz.call_metadata import Credentials
from tests.fuzz.caller import Caller
from tests.fuzz.closer import Closer
from tests.fuzz.known import Known
from tests.fuzz.orders import Orders
from tests.fuzz.process_watch import ProcessWatch
from tests.fuzz.report import MAX_GROWTH_BYTES, Report
from tests.fuzz.request_bytes import ROUTER_MESSAGE_BYTES, WORKER_MESSAGE_BYTES
from tests.fuzz.tally import Tally
from tests.fuzz.valid_requests import FUZZ_POOL, FUZZ_TENANT
from tests.fuzz.witness import Witness
from tests.integration.credentials import operator_of
from tests.integration.leftovers import Pool, leftovers, num_keys
from tests.integration.processes import Runtime, bearer

ROUTER_FLAGS = (
    "--session-ttl-seconds=8",
    "--parked-ttl-seconds=8",
    "--reap-interval-seconds=0.2",
    "--heartbeat-interval-seconds=0.2",
    "--queue-seconds=0.5",
    "--queue-length=8",
    "--max-append-tokens=4096",
    f"--max-message-bytes={ROUTER_MESSAGE_BYTES}",
)
# Exact, since the witness compares bits.
WORKER_FLAGS = ("--weights=int8", f"--max-message-bytes={WORKER_MESSAGE_BYTES}")
NUM_LANES = 20

BATCH_CALLS = 2_000
_NUM_AT_ONCE = 32
_ORDER_SHARE = 0.03
_WITNESS_PAUSE_SECONDS = 0.05
_MAX_KEYS = 2_000
_LEFTOVER_SECONDS = 30.0


@dataclass(frozen=True)
class Plan:
    num_calls: int
    seed: int


class FuzzRun:
    """Args:
    made: a runtime with routers and one worker, not used by anybody else.
    on_progress: told the number of calls made so far.
    """

    def __init__(self, made: Runtime, plan: Plan, on_progress: Callable[[int], None]) -> None:
        self._made = made
        self._plan = plan
        self._on_progress = on_progress
        with operator_of(made) as operator:
            self._credentials = Credentials(
                sessions=operator.make_key(FUZZ_TENANT),
                admin=operator.make_key(FUZZ_TENANT, SCOPE_ADMIN),
                join=operator.make_token(FUZZ_POOL),
            )
            self._witness_key = operator.make_key("witness")
        worker = made.list_workers()[0]
        self._pool = Pool(worker.pool)
        self._tally = Tally()
        addresses = ["127.0.0.1:1", made.address, made.workers[0].address]
        self._known = Known(worker.model, worker.vocab_size, addresses)
        self._watch = ProcessWatch(made, self._known.at_worker)
        self._memory: dict[str, int] = {}
        self._most_keys = 0

    async def run(self) -> Report:
        """Ends early after the first batch in which something happened that must not."""
        started = time.monotonic()
        routers = [router.address for router in self._made.routers]
        self._caller = Caller(routers, self._made.workers[0].address, self._known, self._tally)
        self._closer = Closer(self._caller, self._known, self._credentials)
        self._orders = Orders(self._caller, self._known, self._credentials, self._tally)
        async with grpc.aio.insecure_channel(self._made.address) as channel:
            metadata = bearer(self._witness_key)
            witness = Witness(channel, metadata, self._known.model)
            await self._beside(witness)
            seconds = time.monotonic() - started
            await self._closer.close_long_lived()
            await self._compare(witness, Witness(channel, metadata, self._known.model))
        await self._caller.aclose()
        await self._leave_nothing()
        memory = self._measure()
        return Report(
            seed=self._plan.seed,
            seconds=seconds,
            tally=self._tally,
            num_witness_turns=len(witness.turns),
            num_witness_refusals=witness.num_refused,
            resident_bytes_before=self._memory,
            resident_bytes_after=memory,
            most_redis_keys=self._most_keys,
        )

    async def _beside(self, witness: Witness) -> None:
        """All batches, while the witness takes its turns."""
        self._known.foreign = witness.sessions
        stop = asyncio.Event()
        turns = asyncio.create_task(witness.run(stop, _WITNESS_PAUSE_SECONDS))
        numbers = range(self._plan.num_calls)
        for start in range(0, self._plan.num_calls, BATCH_CALLS):
            await self._batch(iter(numbers[start : start + BATCH_CALLS]))
            self._look()
            if turns.done() or self._tally.num_violations:
                break
        stop.set()
        try:
            await turns
        except Exception as error:
            self._tally.violate(f"the witness, which behaves, was told {error!r} in turn {len(witness.turns)}")

    async def _batch(self, numbers: Iterator[int]) -> None:
        async def call_on() -> None:
            for number in numbers:
                chance = random.Random(f"{self._plan.seed}/{number}/order")
                if chance.random() < _ORDER_SHARE:
                    await self._orders.run(chance)
                else:
                    await self._caller.perform(attempt(self._plan.seed, number, self._known, self._credentials))
                await self._closer.trim(chance)
                self._on_progress(number + 1)

        async with asyncio.TaskGroup() as group:
            for _ in range(_NUM_AT_ONCE):
                group.create_task(call_on())

    def _look(self) -> None:
        """After a batch: what happened to the processes, and how much Redis holds."""
        for problem in self._watch.problems():
            self._tally.violate(problem, problem[:80])
        self._most_keys = max(self._most_keys, num_keys(self._made))
        if self._most_keys > _MAX_KEYS:
            self._tally.violate(f"Redis holds {self._most_keys} keys")
        self._memory = self._memory or self._watch.resident_bytes()

    async def _compare(self, witness: Witness, again: Witness) -> None:
        """Takes the witness's turns again with nobody beside it."""
        while len(again.turns) < len(witness.turns):
            await again.take_turn()
        await again.close()
        for number, (disturbed, quiet) in enumerate(zip(witness.turns, again.turns, strict=True)):
            if disturbed != quiet:
                self._tally.violate(f"turn {number} of the witness gave {disturbed}, and {quiet} with nobody beside it")

    async def _leave_nothing(self) -> None:
        """Waits for the clocks that end what was abandoned; then nothing may be left."""
        with operator_of(self._made) as operator:
            operator.revoke_all()
        deadline = time.monotonic() + _LEFTOVER_SECONDS
        while (found := await asyncio.to_thread(leftovers, self._made, self._pool)) and time.monotonic() < deadline:
            await asyncio.sleep(0.2)
        for leftover in found:
            self._tally.violate(f"left over: {leftover}")
        for problem in self._watch.problems():
            self._tally.violate(problem, problem[:80])

    def _measure(self) -> dict[str, int]:
        memory = self._watch.resident_bytes()
        for name, size in memory.items():
            if size - self._memory[name] > MAX_GROWTH_BYTES:
                self._tally.violate(f"{name} grew from {self._memory[name]} to {size} bytes")
        return memory
