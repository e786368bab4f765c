"""The forks that tests run services in."""

import os
from pathlib import Path

import pytest

from tests.integration.forked_service import ForkedService

_SECONDS = 60.0


def test_a_signal_to_one_that_has_just_ended_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender may not know of its end yet."""
    log = tmp_path / "log"
    log.touch()
    service = ForkedService(["kakeya_router", "--help"], os.environ, log)
    assert service.wait(_SECONDS) == 0
    monkeypatch.setattr(service, "poll", lambda: None)
    service.terminate()
    service.kill()
