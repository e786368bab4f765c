"""`kakeya up install-service`; what it does is tested in tests/unit/shared/installed_service."""

from pathlib import Path

import pytest

from kakeya_local import up_command


def test_a_stack_is_described_as_a_service_with_the_variables_of_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in ("KAKEYA_UP_WORKERS", "KAKEYA_ROUTER_ADMIN_KEY", "KAKEYA_WORKER_WEIGHTS", "KAKEYA_HTTP_UI"):
        monkeypatch.setenv(name, "2")
    monkeypatch.setenv("KAKEYA_API_KEY", "a client's")
    monkeypatch.chdir(tmp_path)
    words = ["--user", "--dry-run", "--stop-grace-seconds", "10", "--redis-server", "bin/redis", "--data-dir", "data"]
    assert up_command.main(["install-service", *words]) == 0
    told = capsys.readouterr().out
    assert "TimeoutStopSec=70\n" in told
    assert f'KAKEYA_UP_REDIS_SERVER="{tmp_path}/bin/redis"\n' in told
    assert f'KAKEYA_UP_DATA_DIR="{tmp_path}/data"\n' in told
    for name in ("KAKEYA_UP_WORKERS", "KAKEYA_ROUTER_ADMIN_KEY", "KAKEYA_WORKER_WEIGHTS", "KAKEYA_HTTP_UI"):
        assert f'{name}="********"\n' in told
    assert "KAKEYA_API_KEY" not in told


def test_flags_of_the_stack_are_checked_first(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        up_command.main(["install-service", "--user", "--bind", "0.0.0.0:1"])
    assert ended.value.code == 2
    assert "outside loopback and keys are not asked for" in capsys.readouterr().err
