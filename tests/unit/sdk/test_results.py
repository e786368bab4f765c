import pytest

from kakeya import OverflowPolicy, SessionState, StopReason
from kakeya_stubs.v1 import runtime_pb2


@pytest.mark.parametrize(
    ("ours", "wire"), [(StopReason, runtime_pb2.StopReason), (SessionState, runtime_pb2.SessionState)]
)
def test_every_value_of_the_contract_has_a_name(ours: type[StopReason] | type[SessionState], wire: object) -> None:
    names = dict(wire.items())  # type: ignore[attr-defined]  # enum wrappers have no common type
    prefix = next(iter(names)).removesuffix("UNSPECIFIED")
    assert {name.removeprefix(prefix): value for name, value in names.items()}.keys() == ours.__members__.keys()
    assert [ours.from_wire(value).name for value in names.values()] == [name.removeprefix(prefix) for name in names]


def test_every_overflow_policy_of_the_contract_has_a_name() -> None:
    values = dict(runtime_pb2.OverflowPolicy.items())
    del values["OVERFLOW_POLICY_UNSPECIFIED"]
    assert [policy.wire for policy in OverflowPolicy] == list(values.values())


def test_a_value_of_a_newer_runtime_is_unspecified() -> None:
    assert StopReason.from_wire(99) is StopReason.UNSPECIFIED
    assert SessionState.from_wire(99) is SessionState.UNSPECIFIED
