"""What launchd and systemd themselves take: a schema of launchd.plist(5), systemd's own check of its units."""

import getpass
import os
import plistlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_shared.installed_service import variables
from kakeya_shared.installed_service.launchd import Launchd
from kakeya_shared.installed_service.service import Scope, Service, ServiceError
from kakeya_shared.installed_service.systemd import Systemd
from tests.unit.shared.installed_service.hosts import stage

ME = getpass.getuser()
# The keys that launchd.plist(5) of macOS 15 has for jobs such as ours, and their types. launchd says nothing of a key
# that it does not know, or whose value is of another type: it leaves it out.
PLIST: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["Label", "ProgramArguments"],
    "properties": {
        "Label": {"type": "string", "pattern": "^[A-Za-z0-9.-]+$"},
        "ProgramArguments": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "RunAtLoad": {"type": "boolean"},
        "KeepAlive": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "SuccessfulExit": {"type": "boolean"},
                "Crashed": {"type": "boolean"},
                "PathState": {"type": "object", "additionalProperties": {"type": "boolean"}},
            },
        },
        "UserName": {"type": "string"},
        "ThrottleInterval": {"type": "integer", "minimum": 0},
        "ExitTimeOut": {"type": "integer", "minimum": 1},
        "ProcessType": {"enum": ["Background", "Standard", "Adaptive", "Interactive"]},
        "SoftResourceLimits": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"NumberOfFiles": {"type": "integer", "minimum": 1}},
        },
    },
}


def service(scope: Scope, program: tuple[str, ...] = ("/bin/sh",)) -> Service:
    return Service(
        name="kakeya-worker",
        program=program,
        command="worker",
        variables={"A": "b"},
        scope=scope,
        run_as=ME if scope is Scope.SYSTEM else "",
        stop_seconds=20,
    )


@pytest.mark.parametrize("scope", Scope)
def test_launchd_knows_each_key_of_a_plist(tmp_path: Path, scope: Scope) -> None:
    file, _ = Launchd(stage(tmp_path, "darwin").host, scope).files(service(scope, ("/a b/<kakeya>",)))
    job = plistlib.loads(file.text.encode())
    jsonschema_rs.validate(PLIST, job)
    assert job["ProgramArguments"][0] == "/a b/<kakeya>"
    assert ("UserName" in job) == (scope is Scope.SYSTEM)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("scope", Scope)
def test_systemd_verifies_a_unit(tmp_path: Path, scope: Scope) -> None:
    program = tmp_path / "a b; $c 100%/kakeya"
    program.parent.mkdir()
    program.symlink_to("/bin/sh")
    host = stage(tmp_path / "host", "linux").host
    file, _ = Systemd(host, scope).files(service(scope, (str(program),)))
    unit = tmp_path / file.path.name
    unit.write_text(file.text)
    done = verified(unit, scope)
    assert (done.returncode, done.stderr) == (0, "")
    unit.write_text(file.text.replace("KillMode=", "KillsMode=").replace(str(tmp_path), f"{tmp_path}/gone"))
    done = verified(unit, scope)
    assert "KillsMode" in done.stderr


def test_a_program_that_systemd_does_not_take_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="quotes or backslashes: /it's/kakeya"):
        Systemd(stage(tmp_path, "linux").host, Scope.USER).files(service(Scope.USER, ("/it's/kakeya",)))


def verified(unit: Path, scope: Scope) -> subprocess.CompletedProcess[str]:
    where = [] if scope is Scope.SYSTEM else ["--user"]
    command = ["systemd-analyze", "verify", "--man=no", *where, str(unit)]
    environment = os.environ | {"XDG_RUNTIME_DIR": str(unit.parent)}  # without one there is no user's systemd
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


NAMES = st.from_regex("[A-Z_][A-Z0-9_]{0,9}", fullmatch=True)
TEXTS = st.text(st.characters(min_codepoint=32, codec="utf-8", exclude_characters="\x7f"))


@given(found=st.dictionaries(NAMES, TEXTS))
def test_any_variables_come_back_from_their_file(
    tmp_path_factory: pytest.TempPathFactory, found: dict[str, str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.env"
    path.write_text(variables.document("any", found), encoding="utf-8")
    assert variables.read(path) == found


def test_a_file_of_variables_is_as_systemd_reads_it() -> None:
    """In double quotes \\ stands before itself and before a quote; $ and ` are themselves."""
    assert variables.document("toy", {"B": 'x "y" \\z $HOME `q`', "A": ""}) == (
        "# Variables of toy, read when it starts: restart-service after a change.\n"
        'A=""\n'
        'B="x \\"y\\" \\\\z $HOME `q`"\n'
    )
