"""One running Append or Generate, as its router sees it."""

import asyncio
import secrets
from typing import Any

from kakeya_router.operations.journal import Journal
from kakeya_router.store.records import SessionRecord
from kakeya_router.store.sessions.session_changes import Intent
from kakeya_router.workers.worker_client import RunningCall
from kakeya_shared.errors.tree import KakeyaError


class Operation:
    """Made when a call comes in; it holds the session from the time that it has begun until it is over.

    Attributes:
        record: the session as it was when the operation began, and since then as its lane is known to be.
        kind: "append" or "generate", or another that changes nothing.
        tokens_per_minute: quota of the caller; 0 for none.
        op_id: names it to the client, in logs and traces.
        goes_on: it began at another router, or in another call.
        is_answering: a Generate that has come to its first token; a session that lives for one answer ends with it.
        claim: proves to the store that it is this router's.
        call: the worker's calls, ended when the session is taken away.
        homeless: the session has no lane.
        at_worker: set before the worker is called; from then on its lane may differ from the record.
        journal: set once it has begun.
        work: what goes on at the worker, whether or not the client waits for it.
        append_start: history length at which its append begins; None: it has none.
        over: the session is not its any more.
        ending: writes through what the worker committed.
        closing: of the session, which lived for this answer.
    """

    def __init__(self, record: SessionRecord, intent: Intent, tokens_per_minute: int) -> None:
        self.record = record
        self.kind = intent.kind
        self.tokens_per_minute = tokens_per_minute
        self.claim = secrets.token_hex(8)
        self.goes_on = bool(intent.op_id)
        self.op_id = intent.op_id or self.claim
        self.is_answering = False
        self.call = RunningCall()
        self.homeless = False
        self.at_worker = False
        self.append_start: int | None = None
        self.over = False
        self.ending: asyncio.Task[KakeyaError | None] | None = None
        self.closing: asyncio.Task[int | None] | None = None
        self.journal: Journal
        self.work: asyncio.Task[Any] | None = None
