"""Tags of places, by which sessions are found."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kakeya_router.store.connection import time_ms
from kakeya_router.store.keys import PoolKeys
from kakeya_router.store.outcomes import TagTurn
from kakeya_router.store.session_record import PoolName, SessionId, SessionRecord
from kakeya_router.store.sessions import stored_tags
from kakeya_router.store.sessions.session_store import Answer, SessionStore
from kakeya_router.store.sessions.stored_tags import Entry, HistoryPlace


@dataclass(frozen=True, slots=True)
class Tagged:
    """A session that has tags, as of one moment.

    Attributes:
        is_busy: whether an operation runs.
        places: of its history, that have tags.
        named: each tag's.
    """

    record: SessionRecord
    is_busy: bool
    places: frozenset[HistoryPlace]
    named: Mapping[str, HistoryPlace]


class TagStore(SessionStore):
    """Tags places, and finds them; a tag is text in hexadecimal."""

    async def tag(self, record: SessionRecord, place: HistoryPlace, tags: Sequence[str], op_id: str) -> Answer[TagTurn]:
        """See tag_turn.lua."""
        return await self._answer(
            TagTurn, record, kind=place.kind.value, length=place.length, op_id=op_id, tags=list(tags)
        )

    async def find(
        self, pool: PoolName, tenant: str, model: str, tags: Sequence[str], first: int, num_passed: int
    ) -> tuple[int, Entry, Tagged | None] | None:
        """The index of the first tag from `first` on that names anything, the latest place that it names, and of what
        session, as `tagged` has it.

        Args:
            num_passed: of the tag `first` so many of the latest places are passed over.
        """
        keys = PoolKeys(pool)
        found = await self._redis.script(
            "find_tagged",
            [keys.tagged(tenant, model)],
            prefix=keys.prefix,
            first=first + 1,
            num_passed=num_passed,
            tags=[*tags],
        )
        if not found:
            return None
        number, entry, session, held, lease_until_ms, (seconds, microseconds) = found
        now_ms = time_ms((int(seconds), int(microseconds)))
        there = _tagged(_by_field(session), _by_field(held), lease_until_ms, now_ms)
        return int(number) - 1, Entry.of(entry), there

    async def tagged(self, pool: PoolName, session_id: SessionId) -> Tagged | None:
        """A session without touching it; None: it is gone, or its tags are of a history that it has no more."""
        keys = PoolKeys(pool)
        values, held, lease_until_ms, time = await self._redis.commands(
            [
                ("HGETALL", keys.session(session_id)),
                ("HGETALL", keys.tags(session_id)),
                ("HGET", keys.operation(session_id), "lease_until_ms"),
                ("TIME",),
            ]
        )
        return _tagged(values, held, lease_until_ms, time_ms(time))


def _tagged(
    values: Mapping[str, str], held: Mapping[str, str], lease_until_ms: str | None, now_ms: int
) -> Tagged | None:
    if not values or held.get("num_rewinds") != values.get("num_rewinds", "0"):
        return None
    is_busy = int(lease_until_ms or 0) > now_ms
    named = stored_tags.named(held)
    return Tagged(SessionRecord.from_hash(values), is_busy, frozenset(stored_tags.places(held)), named)


def _by_field(flat: Iterable[str]) -> dict[str, str]:
    values = iter(flat)
    return dict(zip(values, values, strict=True))
