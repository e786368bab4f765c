"""The words of the table of scripts: what can be done in a world, the states that come of it, and what changes."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from kakeya_router.store.fleet.heartbeat_store import Lane, Said
from kakeya_router.store.session_record import Claim, Epoch, Incarnation, LaneState, SessionId, SessionRecord
from kakeya_router.store.sessions.queue_store import Place
from kakeya_router.store.sessions.session_changes import UNLIMITED, Cause, Closes, Intent, Limits, TimesToLive
from kakeya_router.store.sessions.stored_snapshots import Snapshots, StoredSnapshot
from kakeya_router.store.worker_record import WorkerRecord
from tests.unit.router.admission_stores import KEYS, LANE_BYTES, POOL, worker_record
from tests.unit.router.session_stores import LaneAtRest, SessionStores, identity
from tests.unit.router.store.script_world import GONE, LEASES, ONE, SESSION, WORKER, Steps, World, in_ms, step, to, told

A, B, C, CREATE, CLOSE = map(Claim, ("a", "b", "c", "create", "close"))
REQUEST, EXPIRY, ABANDON, IDLE, SURPLUS, BOUND = Cause
APPEND = Intent("append", {"num_tokens": 3}, 3, "digest")
GENERATE, REWIND, FORK, PARK = (Intent(kind, {}) for kind in ("generate", "rewind", "fork", "park"))
RETENTION = TimesToLive(lost_ms=1_000, parked_ms=3_600_000)
FILES = [f"p/p.one-1-{start}-0123abcd-{length}.safetensors" for start, length in ((0, 2), (2, 5), (0, 6))]
"""As workers name them."""
SNAPSHOT, LATER = StoredSnapshot(FILES[0], 0, 2, 20), StoredSnapshot(FILES[1], 2, 5, 20)
FIRST, BOTH = (SNAPSHOT,), (SNAPSHOT, LATER)
LISTED = (*BOTH, StoredSnapshot(FILES[2], 0, 6, 20))
OTHER_WORKER = worker_record("v", address="127.0.0.1:2", lane_bytes=70)
OLD_WORKER = replace(OTHER_WORKER, incarnation=Incarnation("old"))
HASTY: dict[str, Any] = {"operation_lease_ms": -1000, "lane_lease_ms": -1000}
"""As `by`: a router whose leases lapse at once."""
PATIENT = {"grace_seconds": 3600}
"""Likewise: one that takes nothing over so soon after an outage."""
STALE: dict[str, Any] = {"worker_id": "w", "incarnation": "i-w", "address": "127.0.0.1:1", "epoch": 1}
"""The lane that a session had at first."""
OFFERED = -1
"""As an epoch: that under which another lane may be opened."""
_RECORD = {each.name for each in fields(SessionRecord)}


def go_on(op_id: str) -> Intent:
    """With an operation that has begun."""
    return Intent("generate", {}, seed=8, op_id=op_id, may_begin=False)


# What can be done.


def of_session(method: str, **defaults: Any) -> Callable[..., Steps]:
    """A step that calls a method of the stores. Beside its arguments it takes `of`, the session (p.one), `by`, the
    leases of the router, and what the router knows of the record that is not so now.
    """
    named = [*inspect.signature(getattr(SessionStores, method)).parameters][2:]

    def made(*args: Any, of: SessionId = ONE, by: Mapping[str, Any] = {}, **given: Any) -> Steps:
        arguments = defaults | dict(zip(named, args, strict=False))
        known = given.get("known", {}) | {each: given[each] for each in given if each in _RECORD and each not in named}
        arguments |= {each: given[each] for each in given if each in named}
        assert len(args) <= len(named), args
        assert given.keys() <= {*named, *_RECORD, "known"}, given

        async def act(world: World) -> Any:
            store, record = SessionStores(world.redis, **{**LEASES, **by}), replace(await world.record(of), **known)
            return await getattr(store, method)(record, **arguments)

        others = {"of": of} if of != ONE else {}
        leases = {"by": "HASTY" if by is HASTY else "PATIENT"} if by else {}
        return Steps((act,), told(method, args, others | leases | given))

    return made


reserve = of_session("reserve", claim=CREATE)
mark_open = of_session("mark_open", claim=CREATE, sink=1, window=4)
renew_opening = of_session("renew_opening", claim=CREATE)
share = of_session("share")
use = of_session("use_source")
close = of_session("begin_close", claim=CLOSE, cause=REQUEST)
delete = of_session("delete", claim=CLOSE, history_length=0)
begin = of_session("begin_operation", intent=GENERATE)
renew = of_session("renew_operation")
extend = of_session("extend_journal", max_tokens=100)
retract = of_session("retract")
pin = of_session("pin_operation")
release = of_session("release_operation")
fail = of_session("fail", invariant="inv1")
lose = of_session("lose", times_to_live=RETENTION, start=0, token_ids=())
rewind = of_session("rewind", snapshots=(), snapshot_store="store", lane_rewinds=1)
put = of_session("set_snapshots", snapshots=(), journal_start=0, snapshot_store="store", num_rewinds=0)
lose_lane = of_session("lose_lane")
resume = of_session("resume", worker=OTHER_WORKER, waiter_id="")
offer = of_session("offer_lane", lease_seconds=200)
park = of_session("park", parked_ms=RETENTION.parked_ms, by_journal=True)


@step
async def end(world: World, claim: Claim, length: int, start: int, tokens: Sequence[int] = (), **given: Any) -> Any:
    """With a lane of so many tokens, of ten bytes each, if nothing else of it is given."""
    said = {name: given.pop(name) for name in LaneAtRest._fields if name in given}
    at = LaneAtRest(length, 10 * length, f"0-{length}", start, tokens)._replace(**said)
    closes = given.pop("closes", Closes.NONE)
    return await world.sessions.end(replace(await world.record(), **given), claim, at, closes=closes)


@step
async def run(world: World, num_tokens: int, intent: Intent = GENERATE) -> None:
    """An operation that makes the history grow, by tokens that are one more than their history index."""
    start = (await world.record()).journal_length
    await begin(Claim("run"), intent).call(world)
    length = start + num_tokens
    await end(Claim("run"), length, start, range(start + 1, length + 1)).call(world)


@step
async def sweep(world: World, **known: Any) -> Any:
    (outcome,) = await world.sessions.lose_all([replace(await world.record(), **known)], RETENTION)
    return outcome


async def offered_epoch(world: World) -> int:
    return int(await world.redis.call(lambda redis: redis.hget(KEYS.session(ONE), "offered_epoch")) or 0)


@step
async def withdraw(world: World, others: int = 0) -> Any:
    """The offer that there is, or another one."""
    return await world.sessions.withdraw_lane(await world.record(), Epoch(await offered_epoch(world) + others))


@step
async def move(
    world: World,
    length: int,
    claim: Claim | None = None,
    snapshots: Snapshots = (),
    onto: WorkerRecord = OTHER_WORKER,
    others: int = 0,
    **known: Any,
) -> Any:
    """Under the epoch that is offered, or another one."""
    record = replace(await world.record(), **known)
    epoch = Epoch(await offered_epoch(world) + others)
    there = onto.holding(replace(record, epoch=epoch).with_lane(LaneState(length, 10 * length, f"0-{length}")))
    return await world.sessions.move(record, there, claim, snapshots, "store" if snapshots else "")


@step
async def join(world: World, worker: WorkerRecord = WORKER, *, again: bool = False, **fields: Any) -> Any:
    return await world.workers.join(replace(worker, **fields), again=again)


@step
async def drop(world: World, worker_id: str = "w", incarnation: str = "i-w", *, lapsed_only: bool = False) -> Any:
    return await world.workers.drop(identity(worker_id, incarnation), lapsed_only=lapsed_only)


@step
async def beat(
    world: World,
    worker_id: str = "w",
    incarnation: str = "i-w",
    *,
    leaving: bool = False,
    number: int = 0,
    kv_live_bytes: int = 70,
    tunnels: str = "",
) -> Any:
    said = Said(
        identity(worker_id, incarnation),
        kv_live_bytes=kv_live_bytes,
        rss_bytes=5_000_000_000,
        leaving=leaving,
        number=number,
        tunnels=tunnels,
    )
    return (await world.heartbeats.heartbeat(said)).is_registered


@step
async def drain(world: World, draining: bool = True, **known: Any) -> Any:
    return await world.workers.mark_draining(replace(WORKER, **known), draining=draining)


@step
async def report(world: World, length: int, epoch: int = 1, incarnation: str = "i-w", num_rewinds: int = 0) -> Any:
    """A lane of so many tokens, of ten bytes each."""
    epoch = await offered_epoch(world) if epoch == OFFERED else epoch
    lane = Lane(ONE, Epoch(epoch), length, 10 * length, f"0-{length}", num_rewinds)
    (is_leased,) = await world.heartbeats.report_lanes(POOL, [(identity("w", incarnation), lane)])
    return world.redis.answers[-1][1] if is_leased else "orphan"


@step
async def enter(world: World, waiter_id: str, tenant: str = "", limits: Limits = UNLIMITED) -> Any:
    return await world.queue.enter(POOL, Place(waiter_id, tenant, "", "m", "", (), LANE_BYTES), limits)


@step
async def redis(world: World, *command: Any) -> None:
    """What time does, or another router, or Redis itself."""
    await world.redis.commands([command])


def tunnelled() -> Steps:
    """The worker is one that nobody can dial."""
    return redis("HSET", KEYS.worker(WORKER.worker_id), "address", f"tunnel:{WORKER.incarnation}").called("tunnelled()")


def write(**values: Any) -> Steps:
    """Fields of the session, as an older router would."""
    return redis("HSET", KEYS.session(ONE), *(part for item in values.items() for part in item))


def remove(key: str) -> Steps:
    return redis("DEL", key)


# States.

DUE = redis("ZADD", KEYS.expiry, 1, ONE).called("due")
"""The session's time has come."""
SILENT = redis("ZADD", KEYS.workers, 1, "w").called("silent")
"""The lease of the worker w has lapsed."""
NOTHING = Steps()
OPENING = reserve().called("opening")
OPEN = (OPENING + mark_open()).called("open")


def ran(num_tokens: int) -> Steps:
    """Open, with so many tokens of history in lane and journal."""
    return (OPEN + run(num_tokens)).called(f"ran({num_tokens})")


def lapsed(claim: Claim, intent: Intent = GENERATE) -> Steps:
    """An operation whose router has vanished."""
    return begin(claim, intent, by=HASTY).called(f"lapsed({claim} {intent.kind})")


def source(start: int, length: int, *snapshots: StoredSnapshot) -> Steps:
    """A session whose journal begins there and has tokens of one more than their index; its snapshots are these."""
    history = extend(A, 0, range(1, length + 1), length - start) + end(A, length, length)
    return (OPEN + begin(A) + history + put(snapshots)).called(f"source({start} {length} {len(snapshots)})")


HALF = (OPEN + begin(A) + extend(A, 0, [1, 2])).called("half")
"""In the middle of an operation of A, with a history of two."""
FORGET = begin(A) + extend(A, 0, [1, 2, 3], 2) + end(A, 3, 3)
FORGETFUL = (OPEN + FORGET).called("forgetful")
"""Its history of three is nowhere but in its lane."""
STORED = (FORGETFUL + put(FIRST)).called("stored")
"""Likewise, and what its journal lacks is in a snapshot."""
BEHIND = (OPEN + begin(A, APPEND) + extend(A, 0, [1, 2, 3]) + end(A, 2, 3)).called("behind")
"""Its lane has two tokens of a history of three."""
EPHEMERAL = (reserve(ephemeral=True, tenant="a") + mark_open()).called("ephemeral")
FAILED = (OPEN + begin(A) + fail(A)).called("failed")
CLOSING = (OPEN + close()).called("closing")
SWEPT = (ran(3) + drop() + sweep()).called("swept")
"""Parked, with a history of three, for its worker was dropped."""
LOST = (FORGETFUL + drop() + sweep()).called("lost")
LANELESS = (HALF + lose_lane(A)).called("laneless")
"""Parked in the middle of an operation of A, with a history of two."""
JOINED = join(OTHER_WORKER)
RESUMED = (JOINED + LANELESS + resume(A)).called("resumed")
"""On the worker v, in the middle of that operation."""

# Changes that come together.

NOW, IN_60S = in_ms(0), in_ms(SESSION.ttl_ms)
LEASE, LANE_LEASE, WORKER_LEASE, OFFER_LEASE = (in_ms(1000 * seconds) for seconds in (600, 300, 400, 200))
OFF = to(reserved_bytes=0, sessions=GONE, usage=GONE)
"""The lane is taken, of which nobody has another."""
BACK = to(ledger=(0, 0, 0))
"""And given back to the worker w."""
EMPTY = to(kv_live_bytes=0, retained="")
"""It was not empty."""
PARKED = to(OFF, state="parked", worker_id="", incarnation="", address="")
USED = to(idle=NOW, idle_since_ms=NOW, expiry=IN_60S)
KEPT = to(expiry=in_ms(RETENTION.parked_ms))
"""For as long as what is parked."""


def lane(length: int) -> dict[str, Any]:
    """The lane on the worker w holds so many tokens, and it has no other."""
    live_bytes = 10 * length
    return to(history_length=length, kv_live_bytes=live_bytes, retained=f"0-{length}", ledger=(100, live_bytes, 1))


def journal(length: int, start: int = 0) -> dict[str, Any]:
    """It ends there, and has tokens of one more than their history index."""
    return to(journal=[*range(start + 1, length + 1)], journal_length=length)
