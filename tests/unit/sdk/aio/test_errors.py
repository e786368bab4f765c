"""Each reason arrives as one exception, over a real socket."""

import grpc
import pytest

import kakeya
from kakeya import AsyncClient, AsyncSession, errors
from kakeya_stubs.v1.error_reason_pb2 import ErrorReason
from tests.unit.sdk.scripted_runtime import STATUSES, ScriptedRuntime, fails, fails_plainly

REASONS = [
    name.removeprefix("ERROR_REASON_")
    for name in ErrorReason.DESCRIPTOR.values_by_name
    if not name.endswith("_UNSPECIFIED")
]


@pytest.mark.parametrize("reason", REASONS)
async def test_each_reason_has_one_status_and_one_exception(runtime: ScriptedRuntime, reason: str) -> None:
    kind = kakeya.KakeyaError.by_reason[reason]
    assert kind.status is STATUSES[reason]
    assert kind.__name__.upper() == reason.replace("_", "")
    runtime.before["CreateSession"].append(fails(reason, retry_after_seconds=2.5, detail="what"))
    async with AsyncClient(runtime.address, max_attempts=1) as client:
        with pytest.raises(kind) as raised:
            await client.create_session()
    error = raised.value
    assert type(error) is kind
    assert (error.status, error.reason, error.message) == (STATUSES[reason], reason, f"scripted {reason}")
    assert (error.retry_after_seconds, error.metadata) == (2.5, {"detail": "what"})


def test_no_two_reasons_share_an_exception() -> None:
    assert sorted(kakeya.KakeyaError.by_reason) == sorted(REASONS)
    assert len(set(kakeya.KakeyaError.by_reason.values())) == len(REASONS)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, kakeya.ConnectionFailed),
        (grpc.StatusCode.DEADLINE_EXCEEDED, kakeya.DeadlineExceeded),
        (grpc.StatusCode.CANCELLED, kakeya.ConnectionFailed),
        (grpc.StatusCode.UNIMPLEMENTED, kakeya.RpcFailed),
        (grpc.StatusCode.NOT_FOUND, kakeya.RpcFailed),
    ],
)
async def test_a_status_without_details(
    runtime: ScriptedRuntime, status: grpc.StatusCode, kind: type[kakeya.KakeyaError]
) -> None:
    broken_details = (("grpc-status-details-bin", b"\xff\xff"),)
    runtime.before["CreateSession"] += [fails_plainly(status), fails_plainly(status, broken_details)]
    async with AsyncClient(runtime.address, max_attempts=1) as client:
        for _ in range(2):
            with pytest.raises(kind) as raised:
                await client.create_session()
            assert (type(raised.value), raised.value.status, raised.value.message) == (kind, status, "plain")


async def test_a_call_that_a_leaving_router_resets_is_repeated(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    runtime.before["AppendTokens"].append(fails_plainly(grpc.StatusCode.CANCELLED))
    runtime.before["Generate"].append(fails_plainly(grpc.StatusCode.CANCELLED))
    assert len(await session.turn([1], max_tokens=3).all()) == 3
    assert session.history_length == 4


@pytest.mark.parametrize(
    ("known", "family"),
    [("DRAINING", kakeya.Unavailable), ("EMPTY_HISTORY", kakeya.InvalidRequest), ("INTERNAL", kakeya.RpcFailed)],
)
async def test_a_reason_of_a_newer_runtime_arrives_as_its_family(
    session: AsyncSession, runtime: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch, known: str, family: type
) -> None:
    monkeypatch.setitem(STATUSES, "FROM_THE_FUTURE", STATUSES[known])
    runtime.before["AppendTokens"] += [fails("FROM_THE_FUTURE") for _ in range(9)]
    with pytest.raises(errors.KakeyaError) as raised:
        await session.append([1])
    assert type(raised.value) is family
    assert raised.value.reason == "FROM_THE_FUTURE"
