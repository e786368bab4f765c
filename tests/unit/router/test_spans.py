"""What a router's spans say of lanes: how they were waited for, moved, written down and made anew."""

import asyncio
from collections.abc import Mapping

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from kakeya_shared.errors.tree import QueueTimedOut
from kakeya_shared.rpc import tracing
from tests.exported_spans import ExportedSpans
from tests.unit.router.fake_worker import SnapshotFiles
from tests.unit.router.lapses import Waits
from tests.unit.router.stack import FORGETFUL, METRICS_ON, Stack, eventually, has_snapshot

PUBLIC = "kakeya.v1.RuntimeService/"
CLOCKS_NS = 50_000_000
"""A part that is told later is timed by another clock than its parent."""


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> ExportedSpans:
    return ExportedSpans(monkeypatch, tracing)


def said(span: ReadableSpan) -> Mapping[str, object]:
    return {name.removeprefix("kakeya."): value for name, value in (span.attributes or {}).items()}


def id_of(span: ReadableSpan) -> int:
    return span.context.span_id


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


async def queued(stack: Stack) -> None:
    await eventually(lambda: _is_queued(stack))


async def _is_queued(stack: Stack) -> bool:
    return (await stack.scrape()).value("kakeya_queued_requests") == 1


async def test_the_wait_in_the_queue_is_a_part_of_placement(stack: Stack, waits: Waits, spans: ExportedSpans) -> None:
    client = await stack.router(admission="queue", queue_seconds=600, **METRICS_ON)
    worker = await stack.worker(client, num_lanes=1)
    held = await client.session()
    assert not spans.named("admission"), "it has not queued"
    waiting = asyncio.create_task(client.session())
    await queued(stack)
    await client.close(held)
    await waiting
    _, placement = spans.named("placement")
    admission = spans.only("admission")
    assert parent_of(admission) == id_of(placement)
    assert placement.start_time is not None
    assert admission.start_time is not None
    assert admission.start_time > placement.start_time - CLOCKS_NS
    assert said(placement)["worker_id"] == worker.worker_id
    assert parent_of(placement) == id_of(spans.named(PUBLIC + "CreateSession")[-1])
    late = asyncio.create_task(client.session())
    await queued(stack)
    waits.end()
    with pytest.raises(QueueTimedOut):
        await late
    assert spans.named("placement")[-1].status.description == "QUEUE_TIMED_OUT"


async def test_a_session_that_comes_back_is_restored_from_its_snapshot(stack: Stack, spans: ExportedSpans) -> None:
    client = await stack.router(**METRICS_ON)
    worker = await stack.worker(client, files=SnapshotFiles())
    session_id = await client.session()
    await client.append(session_id, range(3))
    await client.generate(session_id, 2)
    await eventually(lambda: has_snapshot(stack, session_id, 5))
    snapshot = spans.only("snapshot")
    told = said(snapshot)
    assert (told["gen_ai.conversation.id"], told["worker_id"], told["history_length"]) == (
        session_id,
        worker.worker_id,
        5,
    )
    assert isinstance(told["snapshot_bytes"], int)
    await client.park(session_id)
    await client.append(session_id, [1])
    restore = spans.only("restore")
    assert said(restore)["history_length"] == 5
    assert parent_of(restore) == id_of(spans.named("placement")[-1])
    assert [said(span)["appended"] for span in spans.named("journal")] == [3, 1]


async def test_a_move_names_both_workers(stack: Stack, spans: ExportedSpans) -> None:
    client = await stack.router(**FORGETFUL)
    left = await stack.worker(client)
    session_id = await client.session()
    for _ in range(2):
        await client.append(session_id, [1, 2])
        await client.generate(session_id, 2)
    other = await stack.worker(client, "worker-b")
    await client.drain(left.worker_id)
    await eventually(lambda: _has_moved(spans))
    move = spans.only("move")
    assert (said(move)["left_worker_id"], said(move)["worker_id"]) == (left.worker_id, other.worker_id)
    (written,) = [
        span for span in spans.named("kakeya.worker.v1.VerifierService/WriteLane") if span.kind.name == "CLIENT"
    ]
    assert parent_of(written) == id_of(move)


async def _has_moved(spans: ExportedSpans) -> bool:
    return bool(spans.named("move"))
