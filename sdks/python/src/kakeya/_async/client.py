"""A client of a Kakeya runtime."""

import copy
from types import TracebackType
from typing import Literal, Self

import grpc

from kakeya._async.calls import AsyncCalls
from kakeya._async.lookups import AsyncLookups
from kakeya._async.objects import AsyncObjects
from kakeya._async.opening import AsyncOpening
from kakeya._async.session import AsyncSession
from kakeya._async.turns import AsyncTurns
from kakeya._async.watching import AsyncWatching
from kakeya._spans._tracing import choose
from kakeya._transport._api_key import choose as choose_key
from kakeya._transport._requests import TokenIds
from kakeya.results import OverflowPolicy


class AsyncClient(AsyncTurns, AsyncLookups, AsyncObjects, AsyncWatching):
    """A connection to a runtime; any number of sessions share it. As a context manager it disconnects when left.

    Args:
        address: HOST:PORT of a router, or any target that gRPC knows.
        api_key: sent with every call, where the runtime asks for keys; None takes $KAKEYA_API_KEY, "" is none. Only
            `credentials` keep it from being read on the way.
        credentials: of a TLS channel (`kakeya.tls_credentials`); None for plaintext.
        timeout_seconds: of calls whose work does not depend on the number of tokens, retries included;
            None for no limit. 60 s outlasts a restart of the router, and the 30 s that a new session waits for a
            lane unless the router was told another time: where that is longer, or for ever, `create_session` ends
            at this time-out.
        operation_timeout_seconds: of each append and generate. None, no limit: their time is proportional
            to their tokens and to the speed of the host, and keepalive notices a server that is gone.
        max_attempts: how often a call that is safe to repeat may meet UNAVAILABLE before it fails.
        check_history: operations state the history length they expect. Off, a second writer goes
            unnoticed and an append is not repeated when the connection breaks.
        tracing: spans for all calls, with the application's OpenTelemetry; None for spans if the
            application has OpenTelemetry loaded.

    Raises:
        ValueError: the key has characters that no key has.
        MissingExtra: `tracing` is True and OpenTelemetry is not installed.
    """

    def __init__(
        self,
        address: str = "localhost:50051",
        *,
        api_key: str | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        timeout_seconds: float | None = 60.0,
        operation_timeout_seconds: float | None = None,
        max_attempts: int = 5,
        check_history: bool = True,
        tracing: bool | None = None,
    ) -> None:
        self._check_history = check_history
        self._calls = AsyncCalls(
            address,
            credentials,
            choose_key(api_key),
            tracer=choose(tracing),
            max_attempts=max_attempts,
            timeout_seconds=timeout_seconds,
            operation_timeout_seconds=operation_timeout_seconds,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancels what is running and disconnects. Sessions stay on the server until closed or expired."""
        await self._calls.close()

    async def create_session(
        self,
        *,
        eos_token_ids: TokenIds = (),
        label: str | None = None,
        model: str | None = None,
        sink: int | None = None,
        window: int | None = None,
        pin: int | None = None,
        on_overflow: OverflowPolicy | Literal["evict", "refuse"] | None = None,
        speculation: str | None = None,
        fingerprint: str | None = None,
        inexact_resume: bool = False,
        ephemeral: bool = False,
        ttl_seconds: int | None = None,
        park_after_seconds: int | None = None,
        disposable: bool = False,
        head: bool = False,
        fork_from: AsyncSession | str | None = None,
        boundary: int | None = None,
        request_id: str | None = None,
        wait_for_capacity_seconds: float = 0.0,
        timeout_seconds: float | None = None,
    ) -> AsyncSession:
        """Opens a session: a lane of fixed size is reserved for it on one worker.

        Args:
            eos_token_ids: generation stops after one of these.
            label: free text for the operator's eyes, at most 256 bytes.
            model: may be left out when the runtime serves exactly one.
            sink: first tokens that are never evicted; None takes the worker's.
            window: last tokens that are kept; None takes the worker's, or what the sinks leave of the lane.
            pin: first tokens to keep for ever, such as a system prompt; raises `sink` to at least this many.
            on_overflow: what happens when the history outgrows sink and window; None is EVICT.
            speculation: what drafts tokens for it, which its worker then checks several at once: "none", "ngram", or
                another proposer that workers have; None takes the worker's, of a fork the source's. No token is another
                one for it.
            fingerprint: open it only on a worker of this fingerprint (`AsyncSession.fingerprint`), where the same
                tokens, sink and window give the same bits if that worker is exact.
            inexact_resume: after its worker was lost, or it was parked or moved, it may go on with a worker of another
                fingerprint that serves the same model, such as another backend, where none of its own has room. Tokens
                that have arrived stay as they are; it is not exact from then on. A fork has it where its source does.
            ephemeral: for one answer: the runtime closes it when its first generation has ended, also by a cancel or
                an error, and never writes it to a snapshot store. A broken connection ends it, too; a lost router does
                not. A fork is for one answer only where it says so itself.
            ttl_seconds: idle time after which the session expires; None takes the router's.
            park_after_seconds: idle time after which it is parked, where its worker has a snapshot store; None: never.
            disposable: you can make it anew, so it makes room for others once its answer has ended: it is parked, or
                closed, where less is lost or too much is kept. A later call may raise SessionNotFound.
            head: it holds what many conversations begin with, which are forks of it. It is disposable, and of more such
                sessions of a tenant than the router keeps the least recently used is closed.
            fork_from: a session, or the id of one, with whose history the new one begins: its KV is copied, not
                computed. Model, sink, window and on_overflow are the source's; EOS tokens too, unless some are given.
            boundary: history length at which to branch off; None takes the source's present one. For a session whose
                `history_length` is known that one is expected. An earlier one comes from what the runtime remembers
                of the source, which may be busy or parked: one of `info().boundaries` where it has a snapshot store,
                and any where it journals the whole history.
            request_id: calls with the same one get the same session, for 10 minutes. It is not closed then where no
                answer is seen, since it may be another call's.
            wait_for_capacity_seconds: how long to try again, as late as the runtime asks, while it has no free lane,
                its queue is full or a quota is used up; on top of the timeout.
            timeout_seconds: None takes the client's, math.inf is no limit. It should outlast the router's queue, in
                which the call waits; DeadlineExceeded gives up the place in it.

        Where no answer is seen (a cancellation, Ctrl-C, a time-out, a broken connection), a session that was opened all
        the same is closed in the background; the client's `close` waits for that, 2 s at most.

        Raises:
            KakeyaError: NoCapacity when no lane is free and the runtime has no queue, QueueTimedOut or QueueFull where
                it has one, QuotaExceeded when the tenant or the key has used what it may, NoWorker when nobody serves
                the model with that fingerprint, InvalidField when no worker can hold so many sinks or such a window.
                With `fork_from`: SessionNotFound, OperationRunning while an operation runs on the source,
                BoundaryNotReachable when it has no such length or nothing holds what it was like then
                (`metadata["reachable"]` lists lengths that can be), EmptyHistory when it has none, and RpcFailed
                with status UNIMPLEMENTED from a runtime of an older version.
        """
        opening = AsyncOpening(
            self._calls,
            check_history=self._check_history,
            eos_token_ids=eos_token_ids,
            label=label,
            model=model,
            sink=sink,
            window=window,
            pin=pin,
            on_overflow=on_overflow,
            speculation=speculation,
            fingerprint=fingerprint,
            inexact_resume=inexact_resume,
            ephemeral=ephemeral,
            ttl_seconds=ttl_seconds,
            park_after_seconds=park_after_seconds,
            disposable=disposable,
            head=head,
            fork_from=fork_from,
            boundary=boundary,
            request_id=request_id,
            wait_for_capacity_seconds=wait_for_capacity_seconds,
            timeout_seconds=timeout_seconds,
        )
        return await opening.open()

    def with_api_key(self, api_key: str) -> "AsyncClient":
        """A client that shows another key over the same connection, which closes with this one; "" for none.

        For servers that speak for many callers. Raises ValueError: the key has characters that no key has.
        """
        client = copy.copy(self)
        client._calls = self._calls.with_api_key(choose_key(api_key))
        return client

    def session(self, session_id: str, *, history_length: int | None = None) -> AsyncSession:
        """Attaches to a session that exists; nothing is sent. Use it without `with` to leave it open.

        Args:
            history_length: of the session, where it is known, as `find_session` says it; None: it is asked for.
        """
        session = AsyncSession(self._calls, session_id, check_history=self._check_history)
        session._history.length = history_length
        return session
