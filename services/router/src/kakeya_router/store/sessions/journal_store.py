"""The histories of sessions: what is added to one, read from it and taken back."""

from kakeya_router.store.connection import is_done
from kakeya_router.store.keys import PoolKeys, keys_of
from kakeya_router.store.outcomes import RetractJournal, RewindSession
from kakeya_router.store.session_record import Claim, SessionRecord
from kakeya_router.store.sessions.session_store import BYTES_PER_TOKEN, Answer, SessionStore, digest_text, unpack
from kakeya_router.store.sessions.stored_snapshots import Snapshots, text


class JournalStore(SessionStore):
    """Reads journals and takes histories back; `OperationStore` adds to them."""

    async def retract(self, record: SessionRecord, claim: Claim, length: int) -> bool:
        """Takes the last tokens out of the history again, down to a length; False: see retract_journal.lua."""
        return is_done(
            await self._outcome(RetractJournal, record, claim=claim, epoch=record.epoch, journal_length=length)
        )

    async def past(self, record: SessionRecord, length: int) -> tuple[SessionRecord, bytes, int | None] | None:
        """A session, the packed tokens before a length that its journal holds, and the digest of its history there, all
        as of one moment. None: that is not known; of all three: it is gone.
        """
        flat, tokens, digest = await self._redis.script_bytes(
            "read_past", keys_of(record), session_id=record.session_id, length=length
        )
        if not flat:
            return None
        record = SessionRecord.from_pairs(each.decode() for each in flat)
        return record, tokens, int(digest, 16) if digest else None

    async def journal(self, record: SessionRecord, start: int, end: int) -> list[int]:
        """Tokens start..end-1 of a history; none where the journal does not reach back to the first."""
        keys = PoolKeys(record.pool)
        key = keys.journal(record.session_id)
        first, now_first = -1, record.journal_start
        while now_first != first:  # it may be trimmed at any time
            first = now_first
            packed = await self._redis.read_bytes(
                key, BYTES_PER_TOKEN * max(0, start - first), BYTES_PER_TOKEN * max(0, end - first)
            )
            field = await self._redis.call(lambda redis: redis.hget(keys.session(record.session_id), "journal_start"))
            now_first = int(field or 0)
        return unpack(packed) if start >= first else []

    async def rewind(
        self,
        record: SessionRecord,
        claim: Claim,
        length: int,
        snapshots: Snapshots,
        snapshot_store: str,
        lane_rewinds: int | None,
        inherited: Snapshots = (),
        history_digest: int | None = None,
    ) -> Answer[RewindSession]:
        """Takes the history back to a length; see rewind_session.lua.

        Args:
            lane_rewinds: how often the lane was taken back, this time too; None: it is given up.
            inherited: those that it keeps.
            history_digest: of what the lane holds now; None: not known.
        """
        keys = PoolKeys(record.pool)
        return await self._answer(
            RewindSession,
            record,
            (keys.heirs, keys.snapshot_bytes),
            claim=claim,
            epoch=record.epoch,
            length=length,
            known=record.snapshots,
            snapshots=text(snapshots),
            snapshot_store=snapshot_store,
            lane_rewinds=lane_rewinds,
            known_inherited=record.inherited,
            inherited=text(inherited),
            digest=digest_text(history_digest),
        )
