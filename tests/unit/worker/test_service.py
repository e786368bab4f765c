"""`kakeya worker install-service` and its kin; what they do is tested in tests/unit/shared/installed_service."""

import sys
from pathlib import Path

import pytest

from kakeya_worker import command


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_worker_is_described_as_a_service(
    platform: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("KAKEYA_WORKER_TOKEN", "s3cret")
    monkeypatch.setenv("KAKEYA_ROUTER_ADMIN_KEY", "not the worker's")
    words = [
        "--user",
        "--dry-run",
        "--model",
        "kakeya-nano",
        "--join",
        "router:50051",
        "--shutdown-grace-seconds",
        "40",
    ]
    assert command.main(["install-service", *words]) == 0
    told = capsys.readouterr().out
    assert 'KAKEYA_WORKER_JOIN="router:50051"\n' in told
    assert 'KAKEYA_WORKER_TOKEN="********"\n' in told
    assert "ADMIN_KEY" not in told
    assert ("TimeoutStopSec=55\n" if platform == "linux" else "<integer>55</integer>\n") in told


def test_its_flags_are_checked_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["install-service", "--user", "--model", "x", "--lanes", "0"])
    assert ended.value.code == 2
    assert "kakeya worker: error: --lanes (KAKEYA_WORKER_LANES)" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []
    assert command.main(["service-status", "--user"]) == 1
    assert capsys.readouterr().out == "kakeya-worker: not installed\n"
