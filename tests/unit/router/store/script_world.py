"""What a row of the table of scripts is made of: a state, a call, an outcome, and what has changed in Redis."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.fleet.heartbeat_store import HeartbeatStore
from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.object_store import ObjectStore
from kakeya_router.store.scripts import script_of
from kakeya_router.store.session_record import SessionId, SessionRecord
from kakeya_router.store.sessions.queue_store import QueueStore
from kakeya_router.store.sessions.session_store import unpack
from kakeya_shared.process.detached_tasks import DetachedTasks
from tests.unit.router.admission_stores import KEYS, session_record, worker_record
from tests.unit.router.session_stores import SessionStores

ONE, TWO, THREE = SessionId("p.one"), SessionId("p.two"), SessionId("p.three")
SESSION, WORKER = session_record("one"), worker_record()
LEASES: dict[str, Any] = {"operation_lease_ms": 600_000, "lane_lease_ms": 300_000}
"""Each other ones, which lapse in no test by themselves."""
GONE = "gone"
"""What is not there any more."""
# What a script answers that was to bring about a state, and did not.
_REFUSALS = (
    "ahead alive away busy changed duplicate elsewhere empty full gone kept left missing moved orphan quota regressed"
    " other_model sweeping unknown unlike unrecoverable wait"
)
_READ = {"hash": "HGETALL", "string": "GET", "set": "SMEMBERS", "zset": "ZRANGE"}
_LEDGER = ("reserved_bytes", "kv_live_bytes", "num_sessions")
# The kinds of hashes whose fields changes name one by one, each behind this.
_FIELDS = {"session": "", "op": "op_", "worker": "worker_"}


class Recorder(RedisConnection):
    """Remembers what scripts have answered."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.answers: list[tuple[str, Any]] = []

    async def script(self, name: str, keys: Sequence[str], /, **arguments: Any) -> Any:
        answer = await super().script(name, keys, **arguments)
        self.answers.append((name, answer))
        return answer

    async def scripts(self, name: str, calls: Iterable[Any], before: Iterable[Any] = ()) -> list[Any]:
        commands = [*before]
        found = await super().scripts(name, calls, commands)
        self.answers += [(name, answer) for answer in found[len(commands) :]]
        return found

    async def outcomes_apart(self, of: Any, calls: Iterable[Any]) -> list[Any]:
        found = await super().outcomes_apart(of, calls)
        self.answers += [(script_of(of), [each[0], *each[1]]) for each in found if not isinstance(each, Exception)]
        return found


@dataclass
class World:
    """The pool "p" with the worker w, whose sessions are p.one, p.two, ..., and a router."""

    redis: Recorder

    def __post_init__(self) -> None:
        self.sessions = SessionStores(self.redis, **LEASES)
        self.workers = WorkerStore(self.redis, worker_lease_seconds=400)
        self.heartbeats = HeartbeatStore(self.redis, DetachedTasks(), worker_lease_seconds=400)
        self.objects = ObjectStore(self.redis)
        self.queue = QueueStore(self.redis, lease_seconds=500, queue_length=2)

    async def record(self, of: SessionId = ONE) -> SessionRecord:
        """As it is now; where it is not there, as it would be made."""
        return await self.sessions.get(of) or session_record(of.removeprefix("p."))

    async def journaled(self, of: SessionId = ONE) -> list[int]:
        """All that the journal holds."""
        return unpack(await self.redis.read_bytes(KEYS.journal(of), 0, 1 << 20))

    async def later(self) -> int:
        """Lets Redis' clock go on, so that what is set to its time changes."""
        began = await self.redis.now_ms()
        while (now := await self.redis.now_ms()) == began:
            pass
        return now

    async def held(self) -> dict[str, Any]:
        """All that Redis holds, by names as rows say them: "session" with its fields, its "expiry", "journal_two"."""
        keys = sorted(await self.redis.call(lambda redis: redis.keys("*")))
        kinds = await self.redis.commands(("TYPE", key) for key in keys)
        journals = [key for key in keys if ":journal:" in key]  # which are no text
        found = {key: await self.redis.read_bytes(key, 0, 1 << 20) for key in journals}
        texts = {key: kind for key, kind in zip(keys, kinds, strict=True) if key not in found}
        values = await self.redis.commands(
            (_READ[kind], key, *((0, -1, "WITHSCORES") if kind == "zset" else ())) for key, kind in texts.items()
        )
        found |= dict(zip(texts, values, strict=True))
        return {name: value for key in keys for name, value in _named(key, found[key])}


def _named(key: str, value: Any) -> Iterable[tuple[str, Any]]:
    kind, _, of = key.removeprefix("kakeya:{p}:").removeprefix("kakeya:{objects:t}:").partition(":")
    if kind in ("expiry", "idle", "workers", "to_park", "spare", "parked"):
        kind = kind.replace("workers", "lease")
        return [(kind + _suffix(member), score) for member, score in zip(value[::2], value[1::2], strict=True)]
    if kind == "worker":
        ledger = tuple(int(value.pop(name)) for name in _LEDGER)
        return [(f"worker{_suffix(of)}", value), (f"ledger{_suffix(of)}", ledger)]
    if kind in ("session", "op", "sessions", "journal", "tags"):
        read: dict[str, Callable[[Any], Any]] = {"sessions": sorted, "journal": unpack, "tags": _timeless}
        return [(kind + _suffix(of), read.get(kind, dict)(value))]
    told: dict[str, Callable[[Any], Any]] = {
        "expiries": lambda members: members[::2],
        "heirs": lambda members: members[::2],
        "spare_of": lambda members: members[::2],
        "groups": lambda members: members[::2],
        "evicted": lambda members: members[::2],
        "queue": lambda members: ["|".join(member.split("|")[::2]) for member in members[::2]],  # without tickets
        "usage": lambda counts: {name: int(count) for name, count in counts.items()},
        "spent": lambda bucket: int(bucket.split()[0]),
        "lost": sorted,
        "tagged": lambda members: [re.sub(r"\|\d{16}\|", "|", member) for member in members[::2]],
    }
    return [(kind, told.get(kind, lambda as_it_is: as_it_is)(value))]


def _timeless(tags: Mapping[str, str]) -> dict[str, str]:
    """A session's tags without the times at which they came, and without the name of the index."""
    return {name: re.sub(r"\d{16}:", "", value) for name, value in tags.items() if name != "index"}


def _suffix(of: str) -> str:
    """Of what is not the session p.one or the worker w."""
    return "" if of in (ONE, "w", "i-w") else f"_{of.rpartition('.')[2].replace('-', '_')}"


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What is another now, by name: of sessions, operations and workers that were there before field by field. The
    digests of histories have tests of their own.
    """
    found = {}
    for name in before.keys() | after.keys():
        old, new = before.get(name, GONE), after.get(name, GONE)
        kind, _, suffix = name.partition("_")
        if kind in _FIELDS and GONE not in (old, new):
            for each in (old.keys() | new.keys()) - {"journal_digests"}:
                if old.get(each) != new.get(each):
                    found[f"{_FIELDS[kind]}{each}{suffix and '_' + suffix}"] = new.get(each, GONE)
        elif old != new:
            found[name] = new
    return found


class Moment(NamedTuple):
    """The Redis times before and after a call, and what Redis held then."""

    began: int
    ended: int
    after: Mapping[str, Any]


@dataclass(frozen=True)
class Says:
    """What a value says that no text can, in words."""

    words: str
    holds: Callable[[Any, Moment], bool]

    def __repr__(self) -> str:
        return self.words


def in_ms(ms: int) -> Says:
    """So many milliseconds after the call, by Redis' clock."""
    return Says(f"in {ms} ms", lambda value, at: at.began <= float(value) - ms <= at.ended)


def same_as(name: str, more: int = 0) -> Says:
    """What the session says in another field now, and so much more."""
    return Says(f"{name} + {more}", lambda value, at: float(value) == int(at.after["session"][name]) + more)


def having(**fields: Any) -> Says:
    """A new session, operation or worker, with these fields among others."""

    def holds(value: Any, at: Moment) -> bool:
        return value != GONE and all(is_said_by(each, value.get(name, ""), at) for name, each in fields.items())

    return Says(f"having {fields}", holds)


ANY = Says("anything", lambda value, at: value != GONE)


def is_said_by(expected: Any, value: Any, at: Moment) -> bool:
    """Whether that is what a row says, where Redis has texts for numbers."""
    if isinstance(expected, Says):
        return expected.holds(value, at)
    return bool(expected == value) or (isinstance(expected, int) and str(int(expected)) == value)


_Act = Callable[[World], Awaitable[Any]]


@dataclass(frozen=True)
class Steps:
    """What is done in a world, one after the other; of a state all, of a call one."""

    acts: tuple[_Act, ...] = ()
    name: str = "nothing"

    def __add__(self, other: "Steps") -> "Steps":
        return Steps(self.acts + other.acts, f"{self.name}, {other.name}")

    def called(self, name: str) -> "Steps":
        return replace(self, name=name)

    async def call(self, world: World) -> Any:
        """What the one step returns."""
        (act,) = self.acts
        return await act(world)

    async def bring_about(self, world: World) -> None:
        """No script may refuse its part in it; each step has a time of its own."""
        world.redis.answers.clear()
        for act in self.acts:
            await world.later()
            await act(world)
        for script, answer in world.redis.answers:
            outcome = answer if isinstance(answer, str) else answer[0]
            assert outcome not in _REFUSALS.split(), f"{script} answers {outcome}: this is not the state {self.name!r}"


def step(act: Callable[..., Awaitable[Any]]) -> Callable[..., Steps]:
    """Makes a function of a world a step, which is named by its further arguments."""

    def made(*args: Any, **kwargs: Any) -> Steps:
        return Steps((lambda world: act(world, *args, **kwargs),), told(act.__name__, args, kwargs))

    return made


def told(name: str, args: Iterable[Any], kwargs: Mapping[str, Any]) -> str:
    """A call as it is written, and shorter."""
    given = [*map(_told, args), *(f"{name}={_told(value)}" for name, value in kwargs.items())]
    return f"{name}({' '.join(given)})"


def _told(value: Any) -> str:
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return f"[{' '.join(map(_told, value))}]"
    names = ("kind", "name", "session_id", "incarnation")
    return next((str(getattr(value, name)) for name in names if hasattr(value, name)), str(value))


@dataclass(frozen=True)
class Row:
    """Of the table, for each of some states and each of some calls.

    Attributes:
        changes: all that is another in Redis then; nothing else is.
        gives: what the script answers after its outcome, where that is not the session's record.
    """

    states: Steps | tuple[Steps, ...]
    calls: Steps | tuple[Steps, ...]
    outcome: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    gives: Sequence[Any] = ()

    @property
    def cases(self) -> Iterable[tuple[Steps, Steps]]:
        states, calls = ((each,) if isinstance(each, Steps) else each for each in (self.states, self.calls))
        return [(state, call) for state in states for call in calls]


Rows = Mapping[str, Sequence[Row]]
"""By script."""


def to(*groups: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """Changes, of which some come in groups; the later count."""
    return {name: value for group in (*groups, changes) for name, value in group.items()}
