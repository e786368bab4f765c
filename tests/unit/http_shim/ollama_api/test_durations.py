"""How long something is kept, as Ollama's API says it."""

import pytest
from pydantic import TypeAdapter, ValidationError

from kakeya_http_shim.ollama_api.durations import FOR_EVER, KeepAlive, idle_seconds

READER: TypeAdapter[str | float] = TypeAdapter(KeepAlive)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (0, 0),
        (300, 300),
        (0.2, 1),
        (-1, FOR_EVER),
        (1e300, FOR_EVER),
        ("5m", 300),
        ("1h30m", 5400),
        ("+1.5s", 2),
        (".5h", 1800),
        ("100ms", 1),
        ("7µs", 1),
        ("-1m", FOR_EVER),
        ("-1", FOR_EVER),
        ("60", 60),
        ("0", 0),
        ("0s", 0),
        ("9" * 60 + "h", FOR_EVER),
    ],
)
def test_seconds(given: str | float, seconds: int) -> None:
    assert idle_seconds(READER.validate_python(given, strict=True)) == seconds


@pytest.mark.parametrize("given", ["", "m", "5 m", "1h-5m", "five", "5x", True, [], "9" * 70])
def test_what_is_none(given: object) -> None:
    with pytest.raises(ValidationError):
        READER.validate_python(given, strict=True)
