"""When a turn was in time."""

import pytest

from kakeya.bench.load.limits import Limits
from tests.unit.sdk.bench.sweeping import failed, turn

LIMITS = Limits(2.0, 0.2)


@pytest.mark.parametrize(
    ("first", "each", "are_met"),
    [
        (1.0, 0.1, True),
        (2.0, 0.2, True),  # to the very limit
        (2.001, 0.1, False),
        (1.0, 0.201, False),
        (3.0, 0.3, False),
        (1.0, None, True),  # an answer of one token
        (2.001, None, False),
        (None, None, False),  # an answer of none
    ],
)
def test_both_must_be_met(first: float | None, each: float | None, are_met: bool) -> None:
    assert LIMITS.are_met_by(turn(first, each)) is are_met


def test_a_turn_that_failed_is_never_in_time() -> None:
    assert not LIMITS.are_met_by(failed())
    assert not LIMITS.are_met_by(turn(0.1, 0.01, error="Internal: after the last token"))
