import pytest

from kakeya.bench import units


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (3600.0, "3,600.00 s"),
        (1.0, "1.00 s"),
        (0.9994, "999.40 ms"),
        (1e-3, "1.00 ms"),
        (9.5e-4, "950.00 µs"),
        (0, "0.00 µs"),
    ],
)
def test_durations_are_said_in_the_unit_in_which_they_are_at_least_one(seconds: float, text: str) -> None:
    assert units.of_seconds(seconds).text(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (3 << 40, "3,072.0 GiB"),
        (1 << 30, "1.0 GiB"),
        ((1 << 30) - (1 << 20), "1,023.0 MiB"),
        (1536, "1.5 KiB"),
        (1023, "1,023.0 bytes"),
    ],
)
def test_so_are_sizes(size: float, text: str) -> None:
    assert units.of_bytes(size).text(size, 1) == text


def test_a_unit_may_be_said_apart_from_its_numbers() -> None:
    unit = units.of_seconds(0.25)
    assert (unit.name, [unit.number(value, 0) for value in (0.25, 1.5)]) == ("ms", ["250", "1,500"])
