"""Watch of the operators' service: news of the board as messages, for as long as the caller may see them."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, TypeVar

from kakeya_router.access import callers
from kakeya_router.access.access_guard import WATCH, AccessGuard
from kakeya_router.api import admin_messages
from kakeya_router.api.call_gate import CallGate
from kakeya_router.contract import admin_requests
from kakeya_router.contract.same_names import same_named
from kakeya_router.live.board import Board
from kakeya_router.live.views import News, PoolQueue, Sight
from kakeya_shared.rpc.rpc_boundary import Context
from kakeya_shared.rpc.tracing import Metadata
from kakeya_stubs.admin.v1 import admin_pb2 as pb

T = TypeVar("T")

# Some hundred bytes each: a message stays far below gRPC's 4 MiB.
_THINGS_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Watching:
    """Streams to viewers.

    Args:
        guard: asked again before each news, since a key may have been revoked; None: no keys are asked for.
    """

    _board: Board
    _gate: CallGate
    _guard: AccessGuard | None

    async def watch(self, request: pb.WatchRequest, context: Context) -> AsyncGenerator[pb.WatchResponse, None]:
        """Raises InvalidField, TooManyCalls, Draining, StoreUnavailable, and what the guard raises."""
        seconds = admin_requests.interval_seconds(request)
        metadata: Metadata = tuple(context.invocation_metadata() or ())  # type: ignore[arg-type]  # what is read is text
        caller = callers.current()
        sight = Sight(None if caller.is_operator else caller.tenant)
        with self._gate.inside():
            async with aclosing(self._board.watch(sight, seconds)) as all_news:
                async for news in all_news:
                    if self._guard is not None:
                        await self._guard(WATCH, metadata)
                    for response in _responses(news, self._board.at_ms):
                        yield response


def _responses(news: News, at_ms: int) -> Iterator[pb.WatchResponse]:
    """One at least; of many things several."""
    first = pb.WatchResponse(
        begins=news.begins,
        gone_incarnations=[worker.incarnation for worker in news.gone_workers],
        queues=map(_queue, news.queues),
        gone_pools=[queue.pool for queue in news.gone_queues],
    )
    for sums in news.fleet:
        first.fleet.CopyFrom(pb.FleetSums(**same_named(sums, pb.FleetSums.DESCRIPTOR.fields_by_name)))
    responses = [first, *_of_many(news, at_ms)]
    for response in responses:
        response.at = at_ms / 1000
        response.continues = response is not responses[-1]
        yield response


def _of_many(news: News, at_ms: int) -> Iterator[pb.WatchResponse]:
    for workers in _batches(news.workers):
        yield pb.WatchResponse(workers=[admin_messages.worker(each, at_ms) for each in workers])
    for sessions in _batches(news.sessions):
        yield pb.WatchResponse(sessions=[admin_messages.watched(each, at_ms) for each in sessions])
    for gone in _batches(news.gone_sessions):
        yield pb.WatchResponse(gone_session_ids=[each.session_id for each in gone])


def _batches(things: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(things), _THINGS_AT_ONCE):
        yield things[start : start + _THINGS_AT_ONCE]


def _queue(queue: PoolQueue) -> pb.PoolQueue:
    tenants = [pb.QueuedTenant(tenant=tenant, num_waiting=number) for tenant, number in queue.tenants]
    return pb.PoolQueue(pool=queue.pool, num_waiting=queue.num_waiting, tenants=tenants)
