"""What `kakeya doctor` says of a Linux host's sleep."""

import os
import platform
from itertools import takewhile
from pathlib import Path

import pytest

from kakeya_local.doctor import installation, linux_sleep
from kakeya_local.doctor.findings import Condition


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One whose systemd answers as told."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


def tell(host: Path, target: str, logind: str) -> None:
    for name, script in (("systemctl", f"echo {target}; exit 1"), ("loginctl", f"printf '{logind}'")):
        (host / name).write_text(f"#!/bin/sh\n{script}\n")
        (host / name).chmod(0o755)


@pytest.mark.parametrize(
    ("target", "logind", "condition", "said"),
    [
        ("masked", "", Condition.OK, "never: sleep.target is masked"),
        ("static", "IdleAction=ignore\\nHandleLidSwitchExternalPower=ignore\\n", Condition.OK, "not by logind"),
        ("static", "IdleAction=suspend\\n", Condition.ABSENT, "when nobody uses it (IdleAction=suspend)"),
        (
            "static",
            "IdleAction=ignore\\nHandleLidSwitchExternalPower=hibernate\\n",
            Condition.ABSENT,
            "when its lid is closed (HandleLidSwitchExternalPower=hibernate)",
        ),
    ],
)
def test_what_makes_it_sleep_is_named(host: Path, target: str, logind: str, condition: Condition, said: str) -> None:
    tell(host, target, logind)
    (finding,) = linux_sleep.examine()
    assert (finding.area, finding.subject, finding.condition) == ("linux", "sleep", condition)
    assert said in finding.detail
    assert ("systemctl mask sleep.target" in finding.cure) == (condition is Condition.ABSENT)


def test_a_container_is_not_spoken_of(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(host, "", "")
    assert [*linux_sleep.examine()] == []
    monkeypatch.setenv("PATH", str(host / "nothing"))
    assert [*linux_sleep.examine()] == []


def test_the_doctor_looks_at_linux_only(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(host, "masked", "")
    for system, expected in (("Linux", ["sleep"]), ("FreeBSD", [])):
        monkeypatch.setattr(platform, "system", lambda system=system: system)
        first = takewhile(lambda each: each.subject != "kakeya", installation.examine())  # the parts take their time
        assert [each.subject for each in first if each.area == "linux"] == expected
