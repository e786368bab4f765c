"""A worker as a service of a host that systemd runs: in namespaces of its own, where this host lets us make them."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.processes import START_SECONDS

SYSTEMD = Path("/lib/systemd/systemd")
UNITS = Path("/lib/systemd/system")
# What a unit such as ours wants, and a journal. Nothing else of this host is started a second time.
NEEDED = (
    "basic.target", "multi-user.target", "network-online.target", "network.target", "paths.target", "shutdown.target",
    "slices.target", "sockets.target", "sysinit.target", "timers.target", "umount.target",
    "systemd-journald.service", "systemd-journald.socket", "systemd-journald-dev-log.socket",
)  # fmt: skip
KAKEYA = Path(sys.executable).with_name("kakeya")
NAMESPACES = ["unshare", "--kill-child", "--fork", "--pid", "--mount", "--mount-proc", "--cgroup", "--uts", "--ipc"]

# Process 1 becomes systemd, with files of its own below /etc, /run and /var/log. `probe.service` runs what it is told
# in files of a directory, since nothing outside reaches this systemd.
BOOT = """\
set -e
mount --make-rprivate /
mkdir '{work}/units' '{work}/etc' && cd {units} && cp -a {needed} '{work}/units'
cp -a /etc/. '{work}/etc' && rm -rf '{work}/etc/systemd' && mkdir -p '{work}/etc/systemd/system'
mv '{work}/probe.service' '{work}/units'
mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /var/log
mount --bind '{work}/units' {units} && mount --bind '{work}/etc' /etc
cd / && exec {systemd} --system --unit=probe.service --log-target=null
"""
PROBE = """\
[Unit]
DefaultDependencies=no
Wants=systemd-journald.socket
After=systemd-journald.socket
[Service]
ExecStart=/bin/sh '{work}/probe.sh'
"""
ASKED = """\
export HOME='{work}' PATH='{path}'
while sleep 0.05 ; do
  for asked in '{work}'/ask-* ; do
    [ -e "$asked" ] || continue
    mv "$asked" '{work}/asked' ; sh '{work}/asked' > '{work}/out' 2>&1 ; echo "
$?" >> '{work}/out'
    mv '{work}/out' "$asked.answer"
  done
done
"""


class Host:
    """A host on which commands are run by what is in it."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._num_asked = 0

    def run(self, *words: str) -> tuple[str, int]:
        """What a command printed, and its exit status."""
        self._num_asked += 1
        part, asked = self._work / "part", self._work / f"ask-{self._num_asked}"
        part.write_text(" ".join(f"'{word}'" for word in words))
        part.rename(asked)
        answer = asked.with_name(f"{asked.name}.answer")
        ends_at = time.monotonic() + START_SECONDS
        while not answer.exists():
            assert time.monotonic() < ends_at, words
            time.sleep(0.02)
        printed, _, status = answer.read_text().rstrip("\n").rpartition("\n")
        answer.unlink()
        return printed.rstrip("\n"), int(status)

    def kakeya(self, *words: str) -> str:
        printed, status = self.run(str(KAKEYA), "worker", *words)
        assert status == 0, printed
        return printed

    def state(self) -> dict[str, Any]:
        printed, _ = self.run(str(KAKEYA), "worker", "service-status", "--json")
        state: dict[str, Any] = json.loads(printed)
        return state

    def files(self) -> dict[str, bytes]:
        etc = self._work / "etc"
        return {str(file): file.read_bytes() for file in etc.rglob("*") if file.is_file() and not file.is_symlink()}

    def until(self, what: str, **facts: object) -> dict[str, Any]:
        ends_at = time.monotonic() + START_SECONDS
        while not facts.items() <= (state := self.state()).items():
            assert time.monotonic() < ends_at, (what, state)
        return state


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    if os.geteuid() or not SYSTEMD.exists() or shutil.which("unshare") is None:
        pytest.skip("it takes root, systemd and unshare")
    names = {"work": tmp_path, "units": UNITS, "systemd": SYSTEMD, "path": os.environ["PATH"]}
    needed = " ".join(name for name in NEEDED if (UNITS / name).exists())
    (tmp_path / "boot.sh").write_text(BOOT.format(needed=needed, **names))
    (tmp_path / "probe.sh").write_text(ASKED.format(**names))
    (tmp_path / "probe.service").write_text(PROBE.format(**names))
    with (tmp_path / "boot.log").open("wb") as log:
        booted = subprocess.Popen(
            [*NAMESPACES, "/bin/sh", str(tmp_path / "boot.sh")],
            stdout=log, stderr=log, env=os.environ | {"container": "lxc"},
        )  # fmt: skip
    try:
        found = Host(tmp_path)
        while not (tmp_path / "units/probe.service").exists():
            if booted.poll() is not None:
                pytest.skip(f"no namespaces: {(tmp_path / 'boot.log').read_text().strip()}")
            time.sleep(0.02)
        yield found
    finally:
        booted.kill()
        booted.wait()


@pytest.mark.heavy
def test_a_worker_is_started_at_boot_again_when_it_fails_and_leaves_nothing(host: Host, tmp_path: Path) -> None:
    before = host.files()
    words = ["--model", "kakeya-nano", "--window", "64", "--lanes", "2", "--cache-dir", str(tmp_path / "cache")]
    host.kakeya("install-service", "--system", "--run-as", "root", "--env", "SECRET=hush", *words)
    unit = tmp_path / "etc/systemd/system/kakeya-worker.service"
    assert (tmp_path / "etc/systemd/system/multi-user.target.wants/kakeya-worker.service").is_symlink()
    first = host.until("it runs", state="running")
    environment = f"/proc/{first['pid']}/environ"
    assert "SECRET=hush" in host.run("cat", environment)[0]
    assert "hush" not in unit.read_text() + host.run("cat", f"/proc/{first['pid']}/cmdline")[0]

    host.run("kill", "-KILL", str(first["pid"]))
    second = host.until("it is started again", state="running", num_starts=2)
    assert second["pid"] != first["pid"]

    variables = tmp_path / "etc/kakeya/kakeya-worker.env"
    assert variables.stat().st_mode & 0o777 == 0o600
    variables.write_text(variables.read_text().replace('LANES="2"', 'LANES="0"'))
    host.kakeya("restart-service")
    failed = host.until("it is not started for ever", state="failed")
    assert failed["exit_status"] == "status 2"
    assert "--lanes (KAKEYA_WORKER_LANES)" in failed["last_line"]
    assert "failed, ended last with status 2" in host.run(str(KAKEYA), "worker", "service-status")[0]

    host.kakeya("uninstall-service")
    assert host.state()["state"] == "not installed"
    assert host.files() == before
    assert "kakeya" not in host.run("systemctl", "list-units", "--all", "--no-legend", "kakeya-*")[0]
