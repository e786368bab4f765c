"""One error tree: each kind has one reason and one status, and survives the wire."""

import re
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

import kakeya_stubs
from kakeya_shared.errors import error_details
from kakeya_shared.errors.tree import InvalidField, KakeyaError, NoCapacity
from kakeya_stubs.v1.error_reason_pb2 import ErrorReason

REASONS = [name.removeprefix("ERROR_REASON_") for name, _ in ErrorReason.items() if not name.endswith("_UNSPECIFIED")]


def _documented_statuses() -> dict[str, str]:
    """Reason -> status, as the contract documents them beside each value (the stubs carry its comments)."""
    stub = Path(kakeya_stubs.__file__).parent / "v1" / "error_reason_pb2.pyi"
    pairs = re.findall(r'^ERROR_REASON_(\w+): .*\n"""([A-Z_]+)[:,]', stub.read_text(), re.MULTILINE)
    return dict(pairs)


def _rpc_error(status: grpc.StatusCode, details: bytes | None) -> grpc.aio.AioRpcError:
    trailing = grpc.aio.Metadata(*([(error_details.DETAILS_KEY, details)] if details is not None else []))
    return grpc.aio.AioRpcError(status, grpc.aio.Metadata(), trailing, details="")


def test_every_reason_has_exactly_one_kind() -> None:
    assert sorted(KakeyaError.by_reason) == sorted(REASONS)
    leaves = {kind.reason for kind in KakeyaError.by_reason.values()}
    assert len(leaves) == len(REASONS)


@pytest.mark.parametrize("reason", REASONS)
def test_every_kind_has_the_documented_status_and_survives_the_wire(reason: str) -> None:
    kind = KakeyaError.by_reason[reason]
    assert kind.status.name == _documented_statuses()[reason]
    error = kind("what happened", retry_after_seconds=1.25, metadata={"field": "x"})
    decoded = error_details.decode(_rpc_error(kind.status, error_details.encode(error)))
    assert type(decoded) is kind
    assert decoded.message == "what happened"
    assert decoded.metadata == {"field": "x"}
    assert decoded.retry_after_seconds == 1.25


def test_a_status_is_readable_by_any_client() -> None:
    status = status_pb2.Status.FromString(error_details.encode(NoCapacity("full", retry_after_seconds=0.5)))
    assert (status.code, status.message) == (grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], "full")
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(info)
    assert (info.reason, info.domain) == ("NO_CAPACITY", "kakeya")
    assert status.details[1].Unpack(retry)
    assert retry.retry_delay.ToMilliseconds() == 500


def test_without_a_retry_there_is_no_retry_info() -> None:
    error = error_details.decode(_rpc_error(InvalidField.status, error_details.encode(InvalidField("no"))))
    assert error is not None
    assert error.retry_after_seconds is None


def _foreign_details() -> bytes:
    status = status_pb2.Status(code=3)
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="NO_CAPACITY", domain="example.com"))
    return status.SerializeToString()


@pytest.mark.parametrize("details", [None, b"\xff\xff not protobuf", b"", _foreign_details()])
def test_what_no_kakeya_service_raised_is_not_decoded(details: bytes | None) -> None:
    assert error_details.decode(_rpc_error(grpc.StatusCode.INVALID_ARGUMENT, details)) is None
