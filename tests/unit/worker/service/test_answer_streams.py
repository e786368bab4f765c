"""Streams of answers, without an engine behind them."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any

import pytest

from kakeya_shared.errors import error_details
from kakeya_shared.errors.tree import StaleEpoch
from kakeya_shared.metrics.meters import Meters
from kakeya_shared.rpc import rpc_boundary
from kakeya_shared.rpc.rpc_boundary import RpcBoundary
from kakeya_shared.rpc.served_calls import CallMeters
from kakeya_shared.rpc.tracing import Metadata
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from kakeya_worker.service.answer_streams import AnswerStream, AnswerStreams, Serve
from tests.scrape import Exposition

GENERATE = "kakeya.worker.v1.VerifierService/Generate"


@pytest.fixture
def meters() -> Meters:
    return Meters()


@pytest.fixture
def serving(meters: Meters) -> Callable[..., None]:
    """Has calls served here, by a guard of the test."""

    def serving(guard: rpc_boundary.Guard | None = None) -> None:
        rpc_boundary._boundary.set(RpcBoundary(guard, CallMeters(meters, "worker")))

    return serving


async def begins(*numbers: int) -> AsyncIterator[pb.StreamAnswersRequest]:
    """Answers of these numbers, and the stream stands."""
    for number in numbers:
        yield pb.StreamAnswersRequest(begun=pb.BegunAnswer(answer=number, metadata={"from": "here"}))
    await asyncio.Event().wait()


def standing(requests: AsyncIterator[pb.StreamAnswersRequest], serve: Serve) -> Any:
    return AnswerStreams().stand(requests, serve, lambda *_: None)


async def test_answers_end_with_a_stream_that_is_cancelled_twice(serving: Callable[..., None]) -> None:
    """As gRPC does at times: what the stream waits for when it ends is then cut short."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def serve(_stream: AnswerStream, _number: int, _request: object) -> AsyncIterator[pb.GenerateResponse]:
        try:
            begun.set()
            await asyncio.Event().wait()
            yield pb.GenerateResponse()
        finally:
            ended.set()

    async def stand() -> None:
        serving()
        async with aclosing(standing(begins(1), serve)) as responses:
            async for _ in responses:
                pass

    stream = asyncio.create_task(stand())
    await asyncio.wait_for(begun.wait(), 60)
    stream.cancel()
    await asyncio.sleep(0)
    stream.cancel()
    await asyncio.wait([stream])
    del stream
    gc.collect()
    await asyncio.wait_for(ended.wait(), 60)


async def test_each_answer_is_let_in_and_counted_for_itself(serving: Callable[..., None], meters: Meters) -> None:
    asked: list[tuple[str, Metadata]] = []

    async def guard(method: str, metadata: Metadata) -> Mapping[str, str]:
        asked.append((method, metadata))
        if len(asked) == 2:
            raise StaleEpoch("its lease has lapsed")
        return {}

    async def serve(_stream: AnswerStream, number: int, _request: object) -> AsyncIterator[pb.GenerateResponse]:
        yield pb.GenerateResponse(done=pb.GenerateDone(generated_token_count=number))

    serving(guard)
    ended: dict[int, pb.EndedAnswer] = {}
    async with aclosing(standing(begins(1, 2, 3), serve)) as responses:
        while len(ended) < 3:
            ended |= {each.answer: each for each in (await anext(responses)).ended}
    assert asked == [(f"/{GENERATE}", (("from", "here"),))] * 3
    assert [ended[number].done.generated_token_count for number in (1, 3)] == [1, 3]
    refusal = error_details.decode_status(ended[2].failed)
    assert isinstance(refusal, StaleEpoch)
    family = Exposition.of(meters.exposition()[0].decode()).families["worker_calls"]
    counts = {(each.labels["method"], each.labels["reason"]): each.value for each in family.samples}
    assert counts == {(GENERATE, "OK"): 2, (GENERATE, "STALE_EPOCH"): 1}
