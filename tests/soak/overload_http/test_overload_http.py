"""A slice of `make overload-http`, without what it says about time: other tests may be running beside it."""

from pathlib import Path

import pytest

from tests.soak.overload_http.proof import OverloadHttp

SECONDS = 12.0


@pytest.mark.heavy
def test_the_line_is_bounded_and_nothing_is_left(tmp_path: Path) -> None:
    assert OverloadHttp(seconds=SECONDS).run(tmp_path).violations == []
