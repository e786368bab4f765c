"""Tables show what they are given."""

import pytest

from kakeya_local.terminal import print_table
from tests.awkward_names import AWKWARD_NAMES


def test_nothing_in_a_cell_is_markup(capsys: pytest.CaptureFixture[str]) -> None:
    names = [name for name in AWKWARD_NAMES if name.isprintable()]
    print_table([[name, "end"] for name in names])
    assert [" ".join(line.split("  ")[0].split()) for line in capsys.readouterr().out.splitlines()] == names
