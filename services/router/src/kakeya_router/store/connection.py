"""The one way to Redis: its time-out, the scripts, and errors as the tree's."""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, TypeVar

from redis import exceptions
from redis.client import NEVER_DECODE

from kakeya_router.metrics import RouterMetrics, no_metrics
from kakeya_router.store.keys import LAYOUT, SCHEMA
from kakeya_router.store.layout import UnknownLayout, why_unknown
from kakeya_router.store.outcomes import Alternative, BeginClose, MoveSession, OfferLane, ParkSession
from kakeya_router.store.script_calls import Argument, ScriptCall, together, with_text
from kakeya_router.store.scripts import Script, Text, script_of, scripts
from kakeya_router.store.servers.redis_errors import NO_ANSWER, unusable_because
from kakeya_router.store.servers.server import Command, Generation
from kakeya_router.store.servers.shared_cluster import SharedCluster
from kakeya_router.store.servers.shared_redis import SharedRedis
from kakeya_shared.errors.tree import StoreUnavailable
from kakeya_shared.process.disk_room import shortage
from kakeya_shared.settings.redis_url import TIMEOUT_SECONDS, Kind, RedisUrl

T = TypeVar("T")
OutcomeT = TypeVar("OutcomeT", bound=StrEnum)
OfOneThing = (
    Alternative
    | Literal[BeginClose.CLAIMED, BeginClose.MISSING, BeginClose.KEPT]
    | Literal[MoveSession.MOVED, MoveSession.FULL, MoveSession.AWAY, MoveSession.CHANGED]
    | Literal[OfferLane.OFFERED, OfferLane.BUSY, OfferLane.CHANGED]
    | Literal[ParkSession.PARKED, ParkSession.NO_LANE, ParkSession.LEFT, ParkSession.UNRECOVERABLE, ParkSession.KEPT]
    | Literal[ParkSession.CHANGED, ParkSession.FAILED, ParkSession.MISSING, ParkSession.LOST, ParkSession.BUSY]
)
"""All their outcomes: with another one in a header nothing that asks `is_done` about it passes the check of types."""
_RETRY_AFTER_SECONDS = 1.0
# What is answered later than this was asked of a Redis that nobody could renew a lease at meanwhile. A lease outlasts a
# silence of this length, not one as long as the time-out.
_SILENCE_SECONDS = 1.0
# When the router ends: whatever is still asked then, its leases lapse by themselves.
_LAST_ANSWERS_SECONDS = 2.0
# A few milliseconds for Redis and for this process; a list of thousands must not hold up a heartbeat.
_HASHES_AT_ONCE = 500
# A script holds up all others of its server: these take a millisecond at most.
_CALLS_TOGETHER = 64


class RedisConnection:
    """Runs commands and Lua scripts; remembers since when Redis answers.

    All calls are one short command or script.

    Attributes:
        has_replicas: one of them may take the primary's place.

    Args:
        timeout_seconds: of a connection's begin, and of an answer.
        directory: of Redis' data; None: not on this host.
        num_replicas: that must have what a call has written before it is done.

    Nothing is retried: after a time-out nobody knows whether a script ran, and callers differ in what then is
    right. What a cancelled caller has asked still runs.
    """

    def __init__(
        self,
        url: str,
        timeout_seconds: float = TIMEOUT_SECONDS,
        directory: Path | None = None,
        metrics: RouterMetrics | None = None,
        num_replicas: int = 0,
    ) -> None:
        kind = RedisUrl.parse(url).kind
        of = SharedCluster if kind is Kind.CLUSTER else SharedRedis
        self._redis: SharedRedis = of(url, timeout_seconds, num_replicas)
        self.has_replicas = kind is not Kind.SERVER or num_replicas > 0
        self._metrics = metrics or no_metrics()
        self._scripts = scripts()
        self._directory = directory
        self._answers_since: float | None = None
        self._knows_layout = False
        self._refused = ""
        self._is_closed = False

    async def aclose(self) -> None:
        """Once all calls have their answers. Later ones are refused."""
        await self._redis.drain(_LAST_ANSWERS_SECONDS)
        self._is_closed = True

    async def call(self, command: Callable[[Any], Awaitable[T]]) -> T:
        """Runs `command(redis)`.

        Raises:
            StoreUnavailable: Redis does not answer, or cannot take writes now.
        """
        return await self._guarded(lambda: command(self._redis))

    async def follow(self) -> None:
        """Looks whether other servers have become the primary; with Sentinel and Cluster only."""
        await self._redis.follow()

    async def now_ms(self) -> int:
        """Redis's clock, the only one that leases go by. Raises StoreUnavailable."""
        return time_ms(await self.call(lambda redis: redis.time()))

    async def claim_layout(self) -> None:
        """Says which layout the data has, where nobody has said it. Where it has failed, every other call is refused
        with StoreUnavailable until it succeeds, unless it has succeeded before and Redis only does not answer.

        Raises:
            UnknownLayout: it is another one, which a newer router has written.
            StoreUnavailable: see `call`.
        """
        self._check_open()
        asked = self._redis.execute([("SET", SCHEMA, LAYOUT, "NX"), ("GET", SCHEMA)])
        try:
            _, found = await self._answered(asked)
        except exceptions.ResponseError as error:  # it is no text
            found = str(error)
        except StoreUnavailable as error:
            self._refused = "" if self._knows_layout else error.message
            raise
        self._refused = why_unknown(found)
        self._knows_layout = not self._refused
        if self._refused:
            raise UnknownLayout(self._refused)

    async def script(self, name: str, keys: Sequence[str], /, **arguments: Argument | Sequence[Argument]) -> Any:
        """Runs the script `name`.lua; raises StoreUnavailable."""
        return await self._guarded(lambda: self._evaluate(name, keys, arguments))

    async def script_bytes(self, name: str, keys: Sequence[str], /, **arguments: Argument) -> Any:
        """As `script`; every text of the answer comes as bytes."""
        return await self._guarded(lambda: self._evaluate(name, keys, arguments, **{NEVER_DECODE: True}))

    async def outcome(
        self, of: type[OutcomeT], keys: Sequence[str], /, **arguments: Argument | Sequence[Argument]
    ) -> tuple[OutcomeT, list[Any]]:
        """Runs the script of these outcomes: the one, and what comes with it. Raises StoreUnavailable."""
        answer = await self.script(script_of(of), keys, **arguments)
        outcome, *rest = [answer] if isinstance(answer, str) else answer
        return of(outcome), rest

    async def outcomes(self, of: type[OutcomeT], calls: Iterable[ScriptCall]) -> list[OutcomeT]:
        """As `outcome` for each of these keys and arguments, in one round trip; not atomic."""
        return [*map(of, await self.scripts(script_of(of), calls))]

    async def scripts(self, name: str, calls: Iterable[ScriptCall], before: Iterable[Command] = ()) -> list[Any]:
        """As `script` for each of these keys and arguments, behind some commands, in one round trip; not atomic."""
        script = self._scripts[name]
        commands = [*before, *(_evalsha(script, keys, arguments) for keys, arguments in calls)]
        try:
            return await self.commands(commands)
        except exceptions.NoScriptError:
            return await self.commands(with_text(script.text, commands))

    async def outcomes_apart(
        self, of: type[OutcomeT], calls: Iterable[ScriptCall]
    ) -> list[tuple[OutcomeT, list[Any]] | Exception]:
        """As `outcome` for each of these keys and arguments, in one round trip, or again in another one. What Redis
        refuses one of them with is in its place. Raises StoreUnavailable: it has not answered.

        Args:
            of: whose script answers with a list, whichever it is, and may run twice.
            calls: whose keys are in one slot.
        """
        script, calls = self._scripts[script_of(of)], [*calls]
        arranged = [(keys, _arranged(script, arguments)) for keys, arguments in calls]
        some = [arranged[at : at + _CALLS_TOGETHER] for at in range(0, len(arranged), _CALLS_TOGETHER)]
        found = await self._apart(script.together, [together(script, each) for each in some])
        if any(isinstance(answers, Exception) for answers in found):  # which of the calls it is about, nobody knows
            answers = await self._apart(script.text, [_evalsha(script, *call) for call in calls])
        else:
            answers = [answer for several in found for answer in several]
        return [
            (self._unavailable(answer) or answer) if isinstance(answer, Exception) else (of(answer[0]), answer[1:])
            for answer in answers
        ]

    async def read_bytes(self, name: str, start: int, end: int) -> bytes:
        """Bytes start..end-1 of a string; empty where there is none. Raises StoreUnavailable."""
        if start >= end:
            return b""
        read: bytes = await self.call(
            lambda redis: redis.execute_command("GETRANGE", name, start, end - 1, **{NEVER_DECODE: True})
        )
        return read

    async def commands(self, commands: Iterable[Command]) -> list[Any]:
        """Sends commands in one round trip; not atomic. Raises StoreUnavailable."""
        some = [*commands]
        # None say nothing of whether Redis answers.
        return await self._guarded(lambda: self._redis.execute(some)) if some else []

    async def hash(self, name: str) -> dict[str, str]:
        """Empty where there is none. Raises StoreUnavailable."""
        return await self.call(lambda redis: redis.hgetall(name))

    async def hashes(self, names: Sequence[str]) -> list[dict[str, str]]:
        """As `hash`, for each; some at a time, so that nobody waits for all."""
        found: list[dict[str, str]] = []
        for start in range(0, len(names), _HASHES_AT_ONCE):
            found += await self.commands(("HGETALL", name) for name in names[start : start + _HASHES_AT_ONCE])
        return found

    def answers_for(self, seconds: float) -> bool:
        """Whether Redis has answered without a failure for so long."""
        return self._answers_since is not None and time.monotonic() - self._answers_since >= seconds

    async def _apart(self, text: Text, commands: list[Command]) -> list[Any]:
        """The answers to commands that run a script, errors among them."""
        if not commands:
            return []  # that say nothing of whether Redis answers
        found = await self._guarded(lambda: self._redis.execute_apart(commands))
        if any(isinstance(answer, exceptions.NoScriptError) for answer in found):
            found = await self._guarded(lambda: self._redis.execute_apart(with_text(text, commands)))
        return found

    async def _evaluate(self, name: str, keys: Sequence[str], arguments: Mapping[str, Any], **options: Any) -> Any:
        script, redis = self._scripts[name], self._redis
        command = _evalsha(script, keys, arguments)
        try:
            return await redis.execute_command(*command, **options)
        except exceptions.NoScriptError:
            (told,) = with_text(script.text, [command])
            return await redis.execute_command(*told, **options)

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("this router has stopped", retry_after_seconds=_RETRY_AFTER_SECONDS)

    async def _guarded(self, ask: Callable[[], Awaitable[T]]) -> T:
        self._check_open()
        if self._refused:
            raise StoreUnavailable(self._refused, retry_after_seconds=_RETRY_AFTER_SECONDS)
        return await self._answered(ask())

    async def _answered(self, answer: Awaitable[T]) -> T:
        asked = time.monotonic()
        try:
            result = await answer
        except (*NO_ANSWER, exceptions.ResponseError) as error:
            unavailable = self._unavailable(error)
            if unavailable is None:
                raise
            raise unavailable from error
        seconds = time.monotonic() - asked
        self._metrics.redis_seconds.observe(seconds)
        if self._answers_since is None or seconds > _SILENCE_SECONDS:
            self._answers_since = time.monotonic()
        return result

    def _unavailable(self, error: Exception) -> StoreUnavailable | None:
        """What it says of Redis, if that cannot be used now."""
        reason = unusable_because(error)
        if reason is None:
            return None
        self._answers_since = None
        if self._directory is not None and isinstance(error, NO_ANSWER) and (full := shortage(self._directory)):
            reason = f"{reason}: {full}"
        self._metrics.redis_failures.inc()
        return StoreUnavailable(reason, retry_after_seconds=_RETRY_AFTER_SECONDS)


def is_done(outcome: OfOneThing) -> bool:
    """Whether the script has done it. For callers to whom all other outcomes are the same."""
    outcomes: type[StrEnum] = type(outcome)
    return outcome is next(iter(outcomes))


def time_ms(time: tuple[int, int]) -> int:
    """What TIME answers, in milliseconds."""
    seconds, microseconds = time
    return seconds * 1000 + microseconds // 1000


def _evalsha(script: Script, keys: Sequence[str], arguments: Mapping[str, Any]) -> list[Any]:
    return ["EVALSHA", script.text.sha, len(keys), *keys, *_arranged(script, arguments)]


def _arranged(script: Script, given: Mapping[str, Any]) -> list[str | int | bytes | Generation]:
    """As ARGV. Raises TypeError: one is missing, or has a name that the script does not know."""
    try:
        arranged = [given[name] for name in script.arguments]
        rest = given[script.rest] if script.rest else ()
    except KeyError as error:
        raise TypeError(f"{script.name}.lua wants {error}") from None
    if len(given) != len(arranged) + bool(script.rest):
        raise TypeError(f"{script.name}.lua knows {script.arguments} {script.rest}, and not all of {tuple(given)}")
    return plain([*arranged, *rest])


def plain(arguments: Iterable[Argument]) -> list[str | int | bytes | Generation]:
    """As Redis takes them."""
    return ["" if each is None else int(each) if each is True or each is False else each for each in arguments]
