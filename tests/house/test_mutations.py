"""The faults of `make test-mutations` are in the sources: each is one change of what stands there now."""

from collections import Counter

from tests.mutations.__main__ import ROOT
from tests.mutations.faults import FAULTS


def test_each_fault_is_found_once() -> None:
    lost = [fault.name for fault in FAULTS if (ROOT / fault.file).read_text().count(fault.old) != 1]
    assert lost == []


def test_their_names_are_told_apart() -> None:
    assert [name for name, number in Counter(fault.name for fault in FAULTS).items() if number > 1] == []
