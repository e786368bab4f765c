"""Installed, asked, started again, removed: what is written, what the host is told, and that nothing stays."""

import getpass
import json
import os
import plistlib
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kakeya_shared.installed_service import service_command
from kakeya_shared.installed_service.host import Host
from kakeya_shared.installed_service.service import ServiceError
from kakeya_shared.installed_service.variables import read
from tests.unit.shared.installed_service.hosts import Stage, stage
from tests.unit.shared.installed_service.toy import TOY

ME = getpass.getuser()
KAKEYA = f"{sys.executable} -P -m kakeya"
Staged = Callable[..., Stage]


@pytest.fixture
def staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Staged:
    monkeypatch.setattr("kakeya_shared.installed_service.launchd._LOOK_SECONDS", 0.001)
    monkeypatch.setattr("sys.argv", ["pytest"])

    def make(platform: str, **options: object) -> Stage:
        return stage(tmp_path, platform, **options)  # type: ignore[arg-type]

    return make


def run(on: Stage, *words: str) -> int:
    return service_command.run(TOY, list(words), on.host)


UNIT = """\
[Unit]
Description=Kakeya: toy
StartLimitIntervalSec=0

[Service]
Type=exec
EnvironmentFile={home}/.config/kakeya/kakeya-toy.env
ExecStart={kakeya} toy
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2 78
KillMode=mixed
TimeoutStopSec=27
LimitNOFILE=65536
NoNewPrivileges=yes
SyslogIdentifier=kakeya-toy

[Install]
WantedBy=default.target
"""


def test_a_service_of_a_user_by_systemd(staged: Staged, capsys: pytest.CaptureFixture[str]) -> None:
    on = staged("linux")
    before = on.tree()
    assert run(on, "install-service", "--model", "nano", "--token", "s3cret", "--size=7") == 0
    unit = on.host.home / ".config/systemd/user/kakeya-toy.service"
    variables = on.host.home / ".config/kakeya/kakeya-toy.env"
    assert unit.read_text() == UNIT.format(home=on.host.home, kakeya=KAKEYA)
    assert stat.S_IMODE(unit.stat().st_mode) == 0o644
    assert stat.S_IMODE(variables.stat().st_mode) == 0o600
    assert read(variables) == {
        "PATH": on.host.environment["PATH"],
        "KAKEYA_TOY_MODEL": "nano",
        "KAKEYA_TOY_TOKEN": "s3cret",
        "KAKEYA_TOY_SIZE": "7",
    }
    assert on.calls == [
        "systemctl --user show-environment",
        "loginctl show-user ada --property=Linger",
        "loginctl enable-linger ada",
        "systemctl --user daemon-reload",
        "systemctl --user enable --quiet kakeya-toy.service",
        "systemctl --user restart kakeya-toy.service",
        "systemctl --user show kakeya-toy.service --property=ActiveState,MainPID,NRestarts,ExecMainCode,ExecMainStatus",
    ]
    told = capsys.readouterr()
    assert "running, pid 4711" in told.out
    assert "journalctl --user -u kakeya-toy -f" in told.out
    assert "s3cret" not in told.out + told.err
    assert run(on, "uninstall-service") == 0
    assert on.tree() == before
    assert on.calls[-4:] == [
        "systemctl --user disable --quiet --now kakeya-toy.service",
        "systemctl --user reset-failed kakeya-toy.service",
        "systemctl --user daemon-reload",
        "loginctl disable-linger ada",
    ]
    assert not (on.state / "linger").exists()


def test_a_service_of_the_host_by_systemd_runs_as_who_called_sudo(staged: Staged) -> None:
    on = staged("linux", uid=0, user="root", sudo_user=ME)
    before = on.tree()
    assert run(on, "install-service", "--model", "nano") == 0
    text = (on.host.root / "etc/systemd/system/kakeya-toy.service").read_text()
    assert f"\nUser={ME}\nEnvironmentFile={on.host.root}/etc/kakeya/kakeya-toy.env\n" in text
    assert "\nWants=network-online.target\nAfter=network-online.target\n" in text
    assert "\nWantedBy=multi-user.target\n" in text
    assert not any("loginctl" in call or "--user" in call for call in on.calls)
    assert run(on, "restart-service") == 0
    assert run(on, "uninstall-service", "--system") == 0
    assert on.tree() == before


def test_an_agent_by_launchd(staged: Staged, capsys: pytest.CaptureFixture[str]) -> None:
    on = staged("darwin")
    before = on.tree()
    assert run(on, "install-service", "--model", "nano", "--token", "s3cret", "--size=7", "--name", "b") == 0
    plist = on.host.home / "Library/LaunchAgents/kakeya-toy-b.plist"
    variables = on.host.home / ".config/kakeya/kakeya-toy-b.env"
    log = on.host.home / "Library/Logs/kakeya-toy-b/kakeya-toy-b.log"
    assert plistlib.loads(plist.read_bytes()) == {
        "Label": "kakeya-toy-b",
        "ProgramArguments": [*KAKEYA.split(), "toy", "run-service", str(variables), str(log)],
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ExitTimeOut": 27,
        "ProcessType": "Interactive",
        "SoftResourceLimits": {"NumberOfFiles": 8192},
    }
    assert read(variables)["KAKEYA_TOY_TOKEN"] == "s3cret"
    assert stat.S_IMODE(variables.stat().st_mode) == 0o600
    assert log.parent.is_dir()
    assert on.calls == [
        "launchctl print gui/501",
        "launchctl enable gui/501/kakeya-toy-b",
        "launchctl print gui/501/kakeya-toy-b",
        f"launchctl bootstrap gui/501 {plist}",
        "launchctl print gui/501/kakeya-toy-b",
    ]
    told = capsys.readouterr()
    assert "running, pid 4711, started 3 times, ended last with status 1" in told.out
    assert "s3cret" not in told.out + told.err
    assert "macOS may keep it from the local network" in told.err
    log.write_text("one\ntwo\n")
    assert run(on, "uninstall-service", "--name", "b") == 0
    assert on.tree() == before


def test_a_daemon_by_launchd_reads_its_variables_itself(staged: Staged, capsys: pytest.CaptureFixture[str]) -> None:
    """They, and its logs, are the user's whose process it is."""
    on = staged("darwin", uid=0, user="root")
    before = on.tree()
    assert run(on, "install-service", "--model", "nano", "--run-as", ME) == 0
    plist = plistlib.loads((on.host.root / "Library/LaunchDaemons/kakeya-toy.plist").read_bytes())
    assert plist["UserName"] == ME
    variables = on.host.root / "etc/kakeya/kakeya-toy.env"
    assert (variables.owner(), stat.S_IMODE(variables.stat().st_mode)) == (ME, 0o600)
    assert (on.host.root / "Library/Logs/kakeya-toy").owner() == ME
    assert "note:" not in capsys.readouterr().err
    assert run(on, "restart-service") == 0
    assert on.calls.count(f"launchctl bootstrap system {on.host.root}/Library/LaunchDaemons/kakeya-toy.plist") == 2
    assert on.calls.count("launchctl bootout system/kakeya-toy") == 1
    assert run(on, "uninstall-service") == 0
    assert on.tree() == before


@pytest.mark.parametrize("platform", ["linux", "darwin"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "x", "--size", "0"], "kakeya toy: error: --size (KAKEYA_TOY_SIZE)"),
        ([], "kakeya toy: error: --model (KAKEYA_TOY_MODEL): Field required"),
        (["--model", "x", "--sizes", "1"], "unrecognized arguments: --sizes"),
        (["--model", "x", "--name", "../x"], "'../x': a-z, 0-9 and '-'"),
    ],
)
def test_bad_flags_are_refused_as_the_command_refuses_them_and_nothing_is_written(
    staged: Staged, capsys: pytest.CaptureFixture[str], platform: str, words: list[str], said: str
) -> None:
    on = staged(platform)
    before = on.tree()
    with pytest.raises(SystemExit) as ended:
        run(on, "install-service", *words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert (on.tree(), on.calls) == (before, [])


@pytest.mark.parametrize("platform", ["linux", "darwin"])
@pytest.mark.parametrize(
    ("options", "words", "said"),
    [
        ({}, ["--system", "--run-as", ME], "only root changes services of the host: sudo "),
        ({}, ["--system"], "--system needs --run-as USER"),
        ({}, ["--run-as", ME], "--run-as goes with --system"),
        ({"uid": 0, "sudo_user": ME}, ["--user"], "with sudo it would be root's own"),
        ({}, ["--env", "NOT_SET"], "--env NOT_SET: there is no such variable here"),
        ({}, ["--env", "A-B=1"], "--env 'A-B'"),
        ({}, ["--env", "A=1\n2"], "$A holds a control character"),
    ],
)
def test_what_cannot_be_installed_is_told_and_nothing_is_written(
    staged: Staged,
    capsys: pytest.CaptureFixture[str],
    platform: str,
    options: dict[str, object],
    words: list[str],
    said: str,
) -> None:
    on = staged(platform, **options)
    before = on.tree()
    assert run(on, "install-service", "--model", "nano", *words) == 1
    assert said in capsys.readouterr().err
    assert (on.tree(), on.calls) == (before, [])


def test_a_daemon_of_a_user_who_is_not_there_is_not_half_installed(
    staged: Staged, capsys: pytest.CaptureFixture[str]
) -> None:
    on = staged("darwin", uid=0, user="root")
    before = on.tree()
    assert run(on, "install-service", "--model", "nano", "--run-as", "no-such-user") == 1
    assert "no-such-user" in capsys.readouterr().err
    assert on.tree() == before


@pytest.mark.parametrize(
    ("platform", "fault", "said"),
    [
        ("linux", "no-bus", "systemd does not listen to ada (Failed to connect to bus: No medium found); log in as"),
        ("linux", "fail-restart", "`systemctl --user restart kakeya-toy.service` failed: Failed to restart"),
        ("linux", "fail-daemon-reload", "daemon-reload` failed"),
        ("darwin", "no-session", "ada is not logged in at this Mac's screen"),
        ("darwin", "fail-bootstrap", "failed: Bootstrap failed: 5: Input/output error"),
    ],
)
def test_what_the_host_refuses_is_taken_back(
    staged: Staged, capsys: pytest.CaptureFixture[str], platform: str, fault: str, said: str
) -> None:
    on = staged(platform)
    before = on.tree()
    on.set(fault)
    on.set("fail-disable", "of what was never started")
    assert run(on, "install-service", "--model", "nano") == 1
    assert said in capsys.readouterr().err
    assert on.tree() == before


def test_what_cannot_be_taken_back_is_told_beside_the_cause(
    staged: Staged, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on = staged("darwin")
    on.set("fail-bootstrap")

    def refuse(self: Path, missing_ok: bool = False) -> None:
        if self.suffix == ".plist":
            raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "unlink", refuse)
    assert run(on, "install-service", "--model", "nano") == 1
    said = capsys.readouterr().err
    assert "Bootstrap failed: 5: Input/output error; and what is written stays: " in said
    assert "kakeya-toy.plist cannot be removed: Permission denied" in said


def test_a_host_without_a_manager(staged: Staged, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    on = staged("linux")
    (on.host.root / "run/systemd/system").rmdir()
    assert run(on, "install-service", "--model", "nano") == 1
    assert "systemd does not run this host" in capsys.readouterr().err
    assert run(stage(tmp_path / "other", "freebsd14"), "install-service", "--model", "nano") == 1
    assert "not on freebsd14" in capsys.readouterr().err


def test_one_that_is_there_is_replaced_only_when_asked(staged: Staged, capsys: pytest.CaptureFixture[str]) -> None:
    on = staged("linux")
    assert run(on, "install-service", "--model", "one") == 0
    before = on.tree()
    assert run(on, "install-service", "--model", "two") == 1
    assert "--replace" in capsys.readouterr().err
    assert on.tree() == before
    assert run(on, "install-service", "--model", "two", "--replace") == 0
    assert read(on.host.home / ".config/kakeya/kakeya-toy.env")["KAKEYA_TOY_MODEL"] == "two"
    on.set("fail-restart")
    assert run(on, "install-service", "--model", "three", "--replace") == 1
    assert (on.host.home / ".config/systemd/user/kakeya-toy.service").exists()


def test_who_lingers_already_goes_on_lingering(staged: Staged) -> None:
    on = staged("linux")
    on.set("linger")
    assert run(on, "install-service", "--model", "nano") == 0
    assert run(on, "uninstall-service") == 0
    assert not any(call.startswith(("loginctl enable", "loginctl disable")) for call in on.calls)


def test_of_several_the_last_takes_the_lingering_along(staged: Staged) -> None:
    on = staged("linux")
    before = on.tree()
    assert run(on, "install-service", "--model", "nano") == 0
    assert run(on, "install-service", "--model", "nano", "--name", "b") == 0
    assert run(on, "uninstall-service") == 0
    assert (on.state / "linger").exists()
    assert run(on, "uninstall-service", "--name", "b") == 0
    assert not (on.state / "linger").exists()
    assert on.tree() == before


def test_who_may_not_linger_is_told_how(staged: Staged, capsys: pytest.CaptureFixture[str]) -> None:
    on = staged("linux")
    on.set("may-not-linger")
    assert run(on, "install-service", "--model", "nano") == 0
    assert "sudo loginctl enable-linger ada" in capsys.readouterr().err


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_dry_run_shows_the_files_without_secrets_and_does_nothing(
    staged: Staged, capsys: pytest.CaptureFixture[str], platform: str
) -> None:
    on = staged(platform)
    before = on.tree()
    on.host.environment["OTEL_EXPORTER_OTLP_HEADERS"] = "key=hush"  # type: ignore[index]
    words = ["--model", "nano", "--token", "s3cret", "--dry-run", "--env", "AWS_SECRET_ACCESS_KEY=psst"]
    assert run(on, "install-service", *words) == 0
    told = capsys.readouterr().out
    assert 'KAKEYA_TOY_MODEL="nano"\n' in told
    assert 'KAKEYA_TOY_TOKEN="********"\n' in told
    assert 'OTEL_EXPORTER_OTLP_HEADERS="********"\n' in told
    assert 'AWS_SECRET_ACCESS_KEY="********"\n' in told
    assert "kakeya-toy.env (mode 0600)" in told
    assert ("[Service]" if platform == "linux" else "<key>ProgramArguments</key>") in told
    assert not any(secret in told for secret in ("s3cret", "hush", "psst"))
    assert (on.tree(), on.calls) == (before, [])


def test_variables_and_paths_are_those_of_the_place_where_it_was_installed(
    staged: Staged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = staged("linux")
    work = tmp_path / "work"
    (work / "models/nano").mkdir(parents=True)
    monkeypatch.chdir(work)
    for name, text in {
        "KAKEYA_TOY_TOKEN_FILE": "join.token",
        "KAKEYA_TOY_SIZE": "9",
        "KAKEYA_TOY_LOUD": "",
        "KAKEYA_ROUTER_ADMIN_KEY": "another command's",
        "HF_HOME": "/hub",
        "AWS_REGION": "eu-1",
        "https_proxy": "http://proxy:3128",
    }.items():
        on.host.environment[name] = text  # type: ignore[index]
        monkeypatch.setenv(name, text)
    words = ["--model", "models/nano", "--store", "kept", "--names", "a", "--names", "b", "--size", "3", "--loud"]
    assert run(on, "install-service", *words, "--env", "AWS_REGION", "--env", 'ODD=a "b" \\c $d `e` #f=') == 0
    assert read(on.host.home / ".config/kakeya/kakeya-toy.env") == {
        "PATH": on.host.environment["PATH"],
        "KAKEYA_TOY_TOKEN_FILE": f"{work}/join.token",
        "KAKEYA_TOY_SIZE": "3",
        "KAKEYA_TOY_MODEL": f"{work}/models/nano",
        "KAKEYA_TOY_STORE": f"{work}/kept",
        "KAKEYA_TOY_NAMES": "a,b",
        "KAKEYA_TOY_LOUD": "true",
        "HF_HOME": "/hub",
        "AWS_REGION": "eu-1",
        "https_proxy": "http://proxy:3128",
        "ODD": 'a "b" \\c $d `e` #f=',
    }
    words = ["--model", "nano", "--store", "s3://bucket/kept", "--no-loud", "--replace"]
    assert run(on, "install-service", *words) == 0
    found = read(on.host.home / ".config/kakeya/kakeya-toy.env")
    assert (found["KAKEYA_TOY_MODEL"], found["KAKEYA_TOY_STORE"]) == ("nano", "s3://bucket/kept")
    assert found["KAKEYA_TOY_LOUD"] == "false"


def test_the_status_of_one_that_runs_fails_and_is_not_there(staged: Staged, capsys: pytest.CaptureFixture[str]) -> None:
    on = staged("linux")
    assert run(on, "service-status") == 1
    assert capsys.readouterr().out == "kakeya-toy: not installed\n"
    assert run(on, "restart-service") == 1
    assert run(on, "uninstall-service") == 1
    assert "kakeya-toy is not installed for this user" in capsys.readouterr().err
    assert run(on, "install-service", "--model", "nano") == 0
    capsys.readouterr()
    assert run(on, "service-status") == 0
    assert "last line" not in capsys.readouterr().out
    on.set("show", "ActiveState=failed\nMainPID=0\nNRestarts=4\nExecMainCode=1\nExecMainStatus=78\n")
    on.set("journal", "kakeya toy: error: no token\n")
    assert run(on, "service-status") == 1
    told = capsys.readouterr().out
    assert "failed, started 5 times, ended last with status 78" in told
    assert "last line   kakeya toy: error: no token" in told
    assert run(on, "service-status", "--json") == 1
    assert json.loads(capsys.readouterr().out) == {
        "service": "kakeya-toy",
        "scope": "user",
        "state": "failed",
        "pid": None,
        "num_starts": 5,
        "exit_status": "status 78",
        "unit": f"{on.host.home}/.config/systemd/user/kakeya-toy.service",
        "variables": f"{on.host.home}/.config/kakeya/kakeya-toy.env",
        "log": "journalctl --user -u kakeya-toy -f",
        "last_line": "kakeya toy: error: no token",
    }
    on.set("show", "ActiveState=activating\nMainPID=0\nNRestarts=1\nExecMainCode=2\nExecMainStatus=9\n")
    assert run(on, "service-status") == 1
    assert "starting, started 2 times, ended last with signal 9" in capsys.readouterr().out
    on.set("show", "ActiveState=inactive\n")
    assert run(on, "service-status") == 1
    assert "stopped\n" in capsys.readouterr().out


def test_the_status_by_launchd(staged: Staged, capsys: pytest.CaptureFixture[str]) -> None:
    on = staged("darwin")
    assert run(on, "install-service", "--model", "nano") == 0
    on.set("print", "x = {\n\tstate = not running\n\truns = 2\n\tlast exit code = 78: EX_CONFIG\n}\n")
    capsys.readouterr()
    assert run(on, "service-status", "--json") == 1
    facts = json.loads(capsys.readouterr().out)
    assert (facts["state"], facts["exit_status"]) == ("failed", "status 78: EX_CONFIG")
    assert (facts["num_starts"], facts["last_line"]) == (2, None)
    log = on.host.home / "Library/Logs/kakeya-toy/kakeya-toy.log"
    log.write_text("first\nkakeya toy: error: no token\n")
    on.set("print", "x = {\n\tstate = not running\n\truns = 0\n\tlast exit code = (never exited)\n}\n")
    assert run(on, "service-status") == 1
    assert "stopped\n" in (told := capsys.readouterr().out)
    assert f"tail -F '{log}'" in told
    assert "kakeya toy: error: no token" in told
    log.write_text("")
    on.unset("loaded-kakeya-toy")
    assert run(on, "service-status") == 1
    assert "last line" not in capsys.readouterr().out


def test_one_that_does_not_end_is_told(
    staged: Staged, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kakeya_shared.installed_service.launchd._GONE_SECONDS", 0.0)
    on = staged("darwin")
    assert run(on, "install-service", "--model", "nano") == 0
    on.set("stuck")
    assert run(on, "uninstall-service") == 1
    assert "kakeya-toy does not end" in capsys.readouterr().err
    assert (on.host.home / "Library/LaunchAgents/kakeya-toy.plist").exists()


def test_one_of_the_host_is_found_by_its_users_too(staged: Staged, tmp_path: Path) -> None:
    as_root = staged("linux", uid=0, user="root", sudo_user=ME)
    assert run(as_root, "install-service", "--model", "nano") == 0
    as_user = stage(tmp_path / "user", "linux")
    (as_user.host.root / "etc/systemd").mkdir()
    (as_root.host.root / "etc/systemd/system").rename(as_user.host.root / "etc/systemd/system")
    assert run(as_user, "service-status") == 0
    assert as_user.calls[-1].startswith("systemctl show kakeya-toy.service")
    assert run(as_user, "restart-service") == 1


def test_the_program_is_the_link_by_which_it_was_called(
    staged: Staged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Homebrew's and pipx' links stay where they are when what they point at is replaced."""
    on = staged("linux")
    real, link = tmp_path / "Cellar/1.0/kakeya", tmp_path / "my bin%/kakeya"
    for each in (real, link):
        each.parent.mkdir(parents=True)
    real.write_text("#!/bin/sh\n")
    real.chmod(0o755)
    link.symlink_to(real)
    monkeypatch.chdir(link.parent)
    monkeypatch.setattr("sys.argv", ["./kakeya"])
    assert run(on, "install-service", "--model", "nano", "--dry-run") == 0
    quoted = str(link).replace("%", "%%")
    assert f'ExecStart="{quoted}" toy\n' in capsys.readouterr().out


def test_what_is_said_of_each_verb(staged: Staged, capsys: pytest.CaptureFixture[str]) -> None:
    on = staged("linux")
    for verb in ("install-service", "service-status", "restart-service", "uninstall-service", "run-service"):
        with pytest.raises(SystemExit) as ended:
            run(on, verb, "--help")
        assert ended.value.code == 0
        assert f"kakeya toy {verb}" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        run(on, "service-status", "--model", "x")
    assert ended.value.code == 2


def test_files_that_cannot_be_written_or_removed_are_named(
    staged: Staged, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on = staged("darwin")
    blocked = on.host.home / "Library"
    blocked.write_text("no directory")
    assert run(on, "install-service", "--model", "nano") == 1
    assert f"{blocked}/LaunchAgents/kakeya-toy.plist cannot be written" in capsys.readouterr().err
    blocked.unlink()
    (blocked / "Logs").mkdir(parents=True)
    (blocked / "Logs/kakeya-toy").write_text("no directory")
    assert run(on, "install-service", "--model", "nano") == 1
    assert f"{blocked}/Logs/kakeya-toy cannot be made" in capsys.readouterr().err
    assert run(on, "install-service", "--model", "nano") == 0
    plist = blocked / "LaunchAgents/kakeya-toy.plist"

    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "unlink", refuse)
    assert run(on, "uninstall-service") == 1
    assert f"{plist} cannot be removed: Permission denied" in capsys.readouterr().err


def test_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of this process: its home, its user, and who became root."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SUDO_USER", "ada")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    here = Host.here()
    assert (here.home, here.uid, here.sudo_user, here.user) == (tmp_path, 0, "ada", ME)
    assert here.config_home == tmp_path / "config"
    monkeypatch.setattr("os.geteuid", lambda: 501)
    assert Host.here().sudo_user == ""
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("none")))
    assert service_command.run(TOY, ["service-status"]) == 1
    assert "there is no home directory: set HOME" in capsys.readouterr().err


def test_a_command_of_the_host_that_is_missing_or_hangs(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    on = staged("linux")
    with pytest.raises(ServiceError, match="this host has no no-such-command"):
        on.host.run("no-such-command")
    monkeypatch.setattr("kakeya_shared.installed_service.host._COMMAND_SECONDS", 0.01)
    with pytest.raises(ServiceError, match=r"`sleep 60` has not ended within 0\.01 s"):
        on.host.run("sleep", "60")
    monkeypatch.undo()
    with pytest.raises(ServiceError, match="`false` failed: exit status 1"):
        on.host.demand("false")


def test_who_reads_a_runtime_directory_finds_the_users_bus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    expected = f"/run/user/{os.geteuid()}"
    monkeypatch.setattr(Path, "is_dir", lambda self: str(self) == expected)
    assert Host.here().environment["XDG_RUNTIME_DIR"] == expected
