"""Figures as they stand in tables."""

import pytest

from kakeya_bench.report import quantities
from kakeya_bench.report.blocks import Table
from kakeya_bench.report.quantities import NO_UNIT, Bytes, Seconds, Share, counted, show


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "\N{EN DASH}"),
        (True, "yes"),
        (False, "no"),
        (12_345, "12,345"),
        (1_234.567, "1,234.57"),
        ("as it is", "as it is"),
        (Share(0.125), "12.5%"),
        (Seconds(3600), "3,600.00 s"),
        (Seconds(0.9994), "999.40 ms"),
        (Seconds(-9.5e-4), "-950.00 µs"),
        (Seconds(0), "0.00 µs"),
        (Bytes(3 << 40), "3,072.00 GiB"),
        (Bytes(1536), "1.50 KiB"),
        (Bytes(1023), "1,023 bytes"),
    ],
)
def test_a_value_is_shown_in_the_unit_in_which_it_is_at_least_one(value: object, text: str) -> None:
    assert show(value) == text


def test_what_is_neither_time_nor_size_has_no_unit() -> None:
    assert quantities.unit(float, 5e9) is NO_UNIT


def test_one_of_a_thing_is_not_many() -> None:
    assert [counted(number, "turn") for number in (0, 1, 1_000)] == ["0 turns", "1 turn", "1,000 turns"]


def test_columns_of_nothing_but_numbers_stand_on_the_right() -> None:
    rows = [["a", 1, Seconds(1), True, None, None], ["b", 2.0, None, True, None, "none"]]
    assert Table(["name", *"abcde"], rows).numbers == [False, True, True, False, False, False]
