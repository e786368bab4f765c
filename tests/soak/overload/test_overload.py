"""A slice of `make overload`, without what it says about time: other tests may be running beside it."""

from pathlib import Path

import pytest

from tests.soak.overload.proof import Overload

SECONDS = 25.0


@pytest.mark.heavy
def test_nobody_is_overtaken_or_forgotten_and_nothing_is_left(tmp_path: Path) -> None:
    assert Overload(seconds=SECONDS).run(tmp_path).violations == []
