"""What a worker knows of its process's memory."""

from unittest.mock import Mock

import psutil
import pytest

from kakeya_worker.host import resident_memory


def test_it_is_what_the_system_says_of_this_process() -> None:
    assert resident_memory.rss_bytes() == pytest.approx(psutil.Process().memory_info().rss, rel=0.1)


@pytest.mark.parametrize("reason", [psutil.AccessDenied(), psutil.NoSuchProcess(1), FileNotFoundError("/proc")])
def test_a_system_that_does_not_tell_makes_it_zero(monkeypatch: pytest.MonkeyPatch, reason: Exception) -> None:
    monkeypatch.setattr(psutil, "Process", Mock(side_effect=reason))
    assert resident_memory.rss_bytes() == 0
