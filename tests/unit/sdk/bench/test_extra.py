"""What is said where the extra [bench] is not installed."""

import sys

import pytest

from kakeya.bench import extra
from kakeya.errors import MissingExtra


def test_nothing_is_said_where_it_is_installed() -> None:
    extra.require("kakeya bench session")


@pytest.mark.parametrize("module", ["matplotlib", "psutil", "rich"])
def test_whatever_of_it_is_missing_the_cure_is_named(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra) as raised:
        extra.require("kakeya bench session")
    assert str(raised.value) == ("kakeya bench session needs an extra; install it with: pip install 'kakeya[bench]'")
