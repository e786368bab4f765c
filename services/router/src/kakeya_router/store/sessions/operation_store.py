"""The running operations of sessions; that there is one is the session's busy flag."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from kakeya_router.store.connection import is_done
from kakeya_router.store.keys import journal_keys_of, keys_of
from kakeya_router.store.outcomes import (
    BeginOperation,
    EndOperation,
    ExtendJournal,
    FailSession,
    LoseSession,
    PinOperation,
    ReleaseOperation,
    RenewOperation,
)
from kakeya_router.store.script_calls import Argument
from kakeya_router.store.session_record import Claim, Features, LaneState, SessionId, SessionRecord
from kakeya_router.store.sessions.session_changes import Closes, Intent, TimesToLive
from kakeya_router.store.sessions.session_store import Answer, SessionStore, digest_text, pack

# A few megabytes; one that is not known is read from Redis.
_MAX_KNOWN = 1024


@dataclass(frozen=True, slots=True)
class JournalEnd:
    """A history as it is after it was extended: its length, and its digest in hex; empty: not known."""

    outcome: ExtendJournal
    length: int = 0
    digest: str = ""


@dataclass(frozen=True, slots=True)
class LastTurn:
    """What one answer took that came to its end, as the session's record says it of the latest.

    Attributes:
        prefill_seconds: of all that was appended since the answer before.
        first_token_seconds: from the call's begin to the first token; 0: there was none.
        total_seconds: from the call's begin to its end.
        num_tokens: of the answer.
        ended_ms: by Redis's clock, which writes it; 0: not written yet.
        num_drafted, num_accepted: drafts that were checked, and right; the record has their sums alone.
    """

    prefill_seconds: float
    first_token_seconds: float
    total_seconds: float
    num_tokens: int
    ended_ms: int = 0
    num_drafted: int = 0
    num_accepted: int = 0

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """None where no answer has ended."""
        if not text:
            return None
        prefill, first_token, total, num_tokens, ended_ms = text.split(" ")
        return cls(float(prefill), float(first_token), float(total), int(num_tokens), int(ended_ms))

    def text(self) -> str:
        """The reverse of `parse`, without its end."""
        times = (self.prefill_seconds, self.first_token_seconds, self.total_seconds)
        return " ".join([*(f"{seconds:.6f}" for seconds in times), str(self.num_tokens)])


@dataclass(frozen=True, slots=True, eq=False)
class JournalPart:
    """Tokens for one history.

    Attributes:
        start: history index of the first.
        max_tokens: the oldest beyond so many leave the journal.
        waits_since: when the first came, on the monotonic clock.
    """

    record: SessionRecord
    claim: Claim
    start: int
    token_ids: Sequence[int]
    max_tokens: int
    waits_since: float = 0.0

    def arguments(self, start_tags: Sequence[str] = ()) -> dict[str, Argument | Sequence[str]]:
        """Of extend_journal.lua."""
        return {
            "session_id": self.record.session_id,
            "claim": self.claim,
            "epoch": self.record.epoch,
            "start": self.start,
            "tokens": pack(self.token_ids),
            "max_tokens": self.max_tokens,
            "start_tags": start_tags,
        }


@dataclass(eq=False)
class OperationStore(SessionStore):
    """Begins and ends operations."""

    _known: dict[SessionId, SessionRecord] = field(default_factory=dict, init=False)  # the latest used comes last

    async def known(self, session_id: SessionId) -> SessionRecord | None:
        """As `get`, or as an operation here has last found it: enough to begin one, which reads the session anew and
        is told where it has moved. What else can change must be taken from that.
        """
        return self._known.get(session_id) or await self.get(session_id)

    async def begin_operation(
        self, record: SessionRecord, claim: Claim, intent: Intent, tokens_per_minute: int = 0
    ) -> Answer[BeginOperation]:
        """The answer's record is as of the begin; `tokens_per_minute` is the tenant's quota, 0 for none."""
        answer = await self._answer(
            BeginOperation,
            record,
            claim=claim,
            kind=intent.kind,
            router=self._holder.router_id,
            lease_ms=self._holder.operation_lease_ms,
            may_take_over=self._may_take_over(),
            parameters=json.dumps(dict(intent.parameters)),
            num_tokens=intent.num_tokens,
            digest=intent.digest,
            tokens_per_minute=tokens_per_minute,
            seed=intent.seed,
            op_id=intent.op_id,
            may_begin=intent.may_begin,
            at_length=intent.at_length,
            behind=intent.behind,
            incarnation=record.incarnation,
        )
        self._known.pop(record.session_id, None)
        self._known[record.session_id] = answer.record
        if len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        return answer

    async def renew_operations(self, held: Sequence[tuple[SessionRecord, Claim]]) -> list[RenewOperation | Exception]:
        """Renews the leases of these of a pool, in one round trip. What is raised for one is in its place."""

        def arguments(record: SessionRecord, claim: Claim) -> dict[str, Argument | Sequence[str]]:
            return {
                "session_id": record.session_id,
                "claim": claim,
                "lease_ms": self._holder.operation_lease_ms,
            }

        calls = [(keys_of(record), arguments(record, claim)) for record, claim in held]
        answers = await self._redis.outcomes_apart(RenewOperation, calls)
        return [answer if isinstance(answer, Exception) else answer[0] for answer in answers]

    async def pin_operation(self, record: SessionRecord, claim: Claim, features: Features) -> PinOperation:
        """Has nobody go on with the operation but on workers that name these."""
        return await self._outcome(PinOperation, record, claim=claim, features=",".join(sorted(features)))

    async def extend_journal(
        self,
        record: SessionRecord,
        claim: Claim,
        start: int,
        token_ids: Sequence[int],
        max_tokens: int,
        start_tags: Sequence[str] = (),
    ) -> JournalEnd:
        """Adds tokens to a history; see `JournalPart` and extend_journal.lua.

        Args:
            start_tags: of the place behind them, if the operation's answer begins there.
        """
        arguments = JournalPart(record, claim, start, token_ids, max_tokens).arguments(start_tags)
        outcome, end = await self._redis.outcome(ExtendJournal, journal_keys_of(record), **arguments)
        return JournalEnd(outcome, *end)

    async def extend_journals(self, parts: Sequence[JournalPart]) -> list[JournalEnd | Exception]:
        """As `extend_journal` for each of a pool, in one round trip. What is raised for one is in its place."""
        calls = ((journal_keys_of(part.record), part.arguments()) for part in parts)
        answers = await self._redis.outcomes_apart(ExtendJournal, calls)
        return [answer if isinstance(answer, Exception) else JournalEnd(answer[0], *answer[1]) for answer in answers]

    async def end_operation(
        self,
        record: SessionRecord,
        claim: Claim,
        lane: LaneState,
        start: int,
        token_ids: Sequence[int] = (),
        *,
        closes: Closes = Closes.NONE,
        turn: LastTurn | None = None,
    ) -> Answer[EndOperation]:
        """Ends one, with what the worker holds then.

        Args:
            start: history length up to which everything is journaled; `token_ids` are those after it.
            closes: such a session ends with this operation, and is claimed as `begin_close` does.
            turn: the answer that it ends with.
        """
        return await self._answer(
            EndOperation,
            record,
            claim=claim,
            epoch=record.epoch,
            history_length=lane.history_length,
            kv_live_bytes=lane.kv_live_bytes,
            retained=lane.retained,
            start=start,
            tokens=pack(token_ids),
            closes=closes.value,
            router=self._holder.router_id,
            lease_ms=self._holder.lane_lease_ms,
            num_rewinds=lane.num_rewinds,
            digest=digest_text(lane.history_digest),
            turn="" if turn is None else turn.text(),
            drafted=0 if turn is None else turn.num_drafted,
            accepted=0 if turn is None else turn.num_accepted,
        )

    async def release_operation(self, record: SessionRecord, claim: Claim) -> bool:
        """Ends one that changed nothing; False: it is not its router's any more."""
        return is_done(await self._outcome(ReleaseOperation, record, claim=claim))

    async def fail(self, record: SessionRecord, claim: Claim, invariant: str) -> FailSession:
        """`invariant` is "inv1" or "inv2"."""
        return await self._outcome(FailSession, record, claim=claim, counter=f"{invariant}_violations")

    async def lose(
        self,
        record: SessionRecord,
        claim: Claim,
        times_to_live: TimesToLive,
        start: int,
        token_ids: Sequence[int],
        *,
        for_good: bool = False,
    ) -> LoseSession:
        """Ends an operation whose lane is gone; `token_ids`, from the history index `start` on, are in the history.

        Args:
            for_good: it is known that the session cannot be resumed.
        """
        return await self._outcome(
            LoseSession,
            record,
            claim=claim,
            **times_to_live._asdict(),
            start=start,
            tokens=pack(token_ids),
            incarnation="",
            for_good=for_good,
        )
