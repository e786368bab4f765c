"""What servers say of the live session that they answered from."""

import pytest

from kakeya_bench.compare.texts.text_answer import SessionSaid


@pytest.mark.parametrize(
    ("header", "said_of_it"),
    [
        (None, None),
        ("new; appended=7; reused=0; why=off", SessionSaid("new", "off", 7, 0)),
        ("forked; id=a.b; appended=0; reused=9; why=regenerated", SessionSaid("forked", "regenerated", 0, 9)),
    ],
)
def test_what_is_said_of_a_session(header: str | None, said_of_it: SessionSaid | None) -> None:
    assert SessionSaid.of(header) == said_of_it
