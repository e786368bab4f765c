"""Which snapshots sessions have, and which they have inherited."""

import json
from collections.abc import Mapping, Sequence

from kakeya_router.store.keys import PoolKeys
from kakeya_router.store.outcomes import SetSnapshots
from kakeya_router.store.session_record import PoolName, SessionId, SessionRecord
from kakeya_router.store.sessions.session_store import SessionStore, digest_text
from kakeya_router.store.sessions.stored_snapshots import Snapshots, text


class SnapshotLists(SessionStore):
    """The lists of snapshots in session records."""

    async def set_snapshots(
        self,
        record: SessionRecord,
        snapshots: Snapshots,
        journal_start: int,
        snapshot_store: str,
        num_rewinds: int,
        inherited: Snapshots = (),
    ) -> SetSnapshots:
        """Replaces those of the record by others, of which some may be new.

        Args:
            num_rewinds: of the session when the newest was begun.
            inherited: of those that the record names, which it keeps.
        """
        keys = PoolKeys(record.pool)
        return await self._outcome(
            SetSnapshots,
            record,
            (keys.heirs, keys.snapshot_bytes),
            epoch=record.epoch,
            known=record.snapshots,
            snapshots=text(snapshots),
            length=snapshots[-1].length if snapshots else 0,
            journal_start=journal_start,
            snapshot_store=snapshot_store,
            num_rewinds=num_rewinds,
            operation_number=record.operation_number,
            operation_start=record.operation_start,
            known_inherited=record.inherited,
            inherited=text(inherited),
            digest=digest_text(snapshots[-1].history_digest if snapshots else None),
        )

    async def previous_start(self, record: SessionRecord) -> int:
        """Where the operation before the running one began: it is the latest again if that changes nothing. 0: none."""
        key = PoolKeys(record.pool).operation(record.session_id)
        before = await self._redis.call(lambda redis: redis.hget(key, "before"))
        return int(json.loads(before)[1]) if before else 0

    async def heirs(self, pool: PoolName, files: Sequence[str]) -> dict[str, SessionId]:
        """Of each file that sessions have inherited, one of these; the others are not looked for."""
        key = PoolKeys(pool).heirs
        found = await self._redis.commands(
            ("ZRANGEBYLEX", key, f"[{file}|", f"({file}}}", "LIMIT", 0, 1)  # "}" comes after "|"
            for file in files
        )
        return dict(member.split("|") for members in found for member in members)

    async def forget_heirs(self, pool: PoolName, heirs: Mapping[str, SessionId]) -> None:
        """Those that an older router has closed, which knew nothing of them."""
        if heirs:
            members = [f"{file}|{session_id}" for file, session_id in heirs.items()]
            await self._redis.call(lambda redis: redis.zrem(PoolKeys(pool).heirs, *members))
