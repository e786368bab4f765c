"""The stack of a run: two shims, each behind a router of its own, two models, two tenants; and its kills."""

import asyncio
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from redis.asyncio import Redis

from kakeya_shared import installed_models
from tests.integration.credentials import operator_of
from tests.integration.open_http import MODEL
from tests.integration.processes import Process, Runtime, asking_for_keys, runtime
from tests.soak.histories_http.oracle import Session

OTHER_MODEL = "kakeya-other"
"""The same weights under another name, with a window that conversations outgrow."""
TENANTS = ("ana", "ben")
_WINDOW, _OTHER_WINDOW = 700, 96
_LANES = 256
# Conversations share sessions, so that no client closes one; a conversation of this many seconds has lanes enough.
_CLOSE_SECONDS = 15
_ROUTER_FLAGS = ("--operation-lease-seconds=1.5", "--reap-interval-seconds=0.2")


@dataclass
class Ground:
    """What clients are let loose on.

    Attributes:
        shim_flags: of those that take a shim's place.
        keys: by tenant.
    """

    made: Runtime
    shim_flags: tuple[str, ...]
    keys: Mapping[str, str]

    def address(self, draw: random.Random) -> str:
        """Of a shim that is not known to be dead."""
        return draw.choice(self.made.shims).address

    async def kill_one(self, draw: random.Random) -> str:
        """A router or a shim, with SIGKILL; another takes its place. Returns what it was."""
        kind = draw.choice(("router", "shim"))
        await (self._kill_router(draw) if kind == "router" else self._kill_shim(draw))
        return kind

    async def _kill_router(self, draw: random.Random) -> None:
        """Its successor has its address, as behind a supervisor."""
        routers = self.made.routers
        place = draw.randrange(len(routers))
        router = routers[place]
        await asyncio.to_thread(router.kill)
        started = await asyncio.to_thread(lambda: self.made.start_router(*_ROUTER_FLAGS, address=router.address))
        routers.remove(started)
        routers[place] = started

    async def _kill_shim(self, draw: random.Random) -> None:
        shims = self.made.shims
        place = draw.randrange(len(shims))
        dead = shims.pop(place)
        await asyncio.to_thread(dead.kill)
        await asyncio.to_thread(_start_shim, self.made, self.made.routers[place], self.shim_flags)
        shims.insert(place, shims.pop())


def _start_shim(made: Runtime, router: Process, flags: tuple[str, ...]) -> Process:
    return made.start_http("--router", router.address, *flags)


@contextmanager
def ground(directory: Path) -> Iterator[Ground]:
    """In exact mode, so that equal seeds give equal answers; stopped at the end."""
    model = installed_models.directory(MODEL)
    live = ("--live-sessions", "on", f"--session-close-after-seconds={_CLOSE_SECONDS}")
    flags = (f"--tokenizer={OTHER_MODEL}={MODEL}", *live)
    environment = asking_for_keys()
    with runtime(model, directory, num_workers=0, router_flags=_ROUTER_FLAGS, environment=environment) as made:
        made.start_router(*_ROUTER_FLAGS)
        made.start_worker("--weights=int8", f"--window={_WINDOW}", lanes=_LANES)
        other = ("--weights=int8", f"--window={_OTHER_WINDOW}", f"--served-model-name={OTHER_MODEL}")
        made.start_worker(*other, lanes=_LANES)
        made.wait_for_workers(2)
        for router in list(made.routers):
            _start_shim(made, router, flags)
        with operator_of(made) as operator:
            keys = {tenant: operator.make_key(tenant) for tenant in TENANTS}
        yield Ground(made, flags, keys)


class Records:
    """Sessions as Redis has them, read past everything that answers clients."""

    def __init__(self, store: Redis) -> None:
        self._store = store

    async def session(self, session_id: str) -> Session | None:
        """None where it is gone, or does not have the whole of its history any more."""
        prefix = f"kakeya:{{{session_id.partition('.')[0]}}}:"
        async with self._store.pipeline(transaction=True) as both:
            both.hgetall(f"{prefix}session:{session_id}")
            both.get(f"{prefix}journal:{session_id}")
            record, journal = await both.execute()
        if not record or int(record.get(b"journal_start", 0)):
            return None
        journal = journal or b""
        return Session(
            token_ids=[int.from_bytes(journal[place : place + 4], "little") for place in range(0, len(journal), 4)],
            tenant=record.get(b"tenant", b"").decode(),
            model=record[b"model"].decode(),
            sink=int(record[b"sink"]),
            window=int(record[b"window"]),
            on_overflow=record.get(b"on_overflow", b"evict").decode(),
            eos_token_ids=[int(token_id) for token_id in record.get(b"eos", b"").decode().split(",") if token_id],
            seed=int(record.get(b"operation_seed", 0)),
        )
