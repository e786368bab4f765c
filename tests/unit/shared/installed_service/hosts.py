"""Hosts with a home and a root of their own, and what starts services there.

launchd runs on Macs alone, and systemd only where it has started the host. Their commands are small programs here,
which write down how they are called, keep which services are loaded, and answer in the words of the real ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kakeya_shared.installed_service.host import Host

_RECORD = """#!/bin/sh
said=$(basename "$0") ; for word in "$@"; do said="$said $word"; done
echo "$said" >> '{state}/calls'
fail() {{ echo "$1" >&2; exit "${{2:-1}}"; }}
"""
_SYSTEMCTL = """
[ "$1" = --user ] && {{ shift; [ -e '{state}/no-bus' ] && fail 'Failed to connect to bus: No medium found'; }}
[ -e "{state}/fail-$1" ] && fail "Failed to $1: as it was told"
case "$1" in
  show) cat '{state}/show' ;;
esac
exit 0
"""
_LOGINCTL = """
case "$1" in
  show-user) [ -e '{state}/linger' ] && echo Linger=yes || echo Linger=no ;;
  enable-linger) [ -e '{state}/may-not-linger' ] && fail 'Access denied' ; touch '{state}/linger' ;;
  disable-linger) rm -f '{state}/linger' ;;
esac
"""
_JOURNALCTL = """
cat '{state}/journal' 2>/dev/null
exit 0
"""
# A job goes on for a moment after `bootout` has answered.
_LAUNCHCTL = """
name=${{2##*/}}
case "$1" in
  print)
    case "$2" in
      gui/*/*|system/*) ;;
      *) [ -e '{state}/no-session' ] && fail 'Bad request.' 112 ; exit 0 ;;
    esac
    if [ -e "{state}/leaving-$name" ]; then rm "{state}/leaving-$name" ; cat '{state}/print' ; exit 0 ; fi
    [ -e "{state}/loaded-$name" ] || fail "Could not find service \\"$name\\" in domain for user gui: 501" 113
    cat '{state}/print' ;;
  bootstrap)
    [ -e '{state}/fail-bootstrap' ] && fail 'Bootstrap failed: 5: Input/output error' 5
    name=$(basename "$3" .plist) ; touch "{state}/loaded-$name" ;;
  bootout)
    [ -e "{state}/loaded-$name" ] || fail 'Boot-out failed: 3: No such process' 3
    [ -e "{state}/stuck" ] || {{ rm "{state}/loaded-$name" ; touch "{state}/leaving-$name" ; }} ;;
esac
"""
_SCRIPTS = {"systemctl": _SYSTEMCTL, "loginctl": _LOGINCTL, "journalctl": _JOURNALCTL, "launchctl": _LAUNCHCTL}
RUNNING = "ActiveState=active\nMainPID=4711\nNRestarts=0\nExecMainCode=0\nExecMainStatus=0\n"
PRINTED = """\
gui/501/kakeya-toy = {
\tactive count = 1
\tpath = /Users/ada/Library/LaunchAgents/kakeya-toy.plist
\ttype = LaunchAgent
\tstate = running

\tprogram = /opt/homebrew/bin/kakeya
\tdefault environment = {
\t\tPATH => /usr/bin:/bin:/usr/sbin:/sbin
\t\tstate = no fact of the job
\t}

\tminimum runtime = 10
\texit timeout = 20
\truns = 3
\tpid = 4711
\timmediate reason = speculative
\tforks = 12
\texecs = 1
\tlast exit code = 1

\tsemaphores = {
\t\tsuccessful exit => 0
\t}
}
"""


@dataclass(frozen=True)
class Stage:
    """A host, and what its stand-ins are told and have noted."""

    host: Host
    state: Path

    @property
    def calls(self) -> list[str]:
        path = self.state / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def set(self, name: str, text: str = "") -> None:
        (self.state / name).write_text(text)

    def unset(self, name: str) -> None:
        (self.state / name).unlink()

    def tree(self) -> dict[str, bytes | None]:
        """All files and directories below root and home."""
        return dict(self._tree())

    def _tree(self) -> Iterator[tuple[str, bytes | None]]:
        for base in (self.host.root, self.host.home):
            for path in sorted(base.rglob("*")):
                yield str(path), None if path.is_dir() else path.read_bytes()


def stage(directory: Path, platform: str, *, uid: int = 501, sudo_user: str = "", user: str = "ada") -> Stage:
    """A host of its own below a directory: its `root` is that of the system's files."""
    root, home, state, programs = (directory / name for name in ("root", "home", "state", "bin"))
    for each in (root / "run/systemd/system", root / "etc", root / "Library", home, state, programs):
        each.mkdir(parents=True)
    (root / "etc/hosts").touch()
    (root / "Library/Logs").mkdir()
    (root / "Library/Logs/others").touch()
    for name, text in _SCRIPTS.items():
        program = programs / name
        program.write_text((_RECORD + text).format(state=state))
        program.chmod(0o755)
    (state / "show").write_text(RUNNING)
    (state / "print").write_text(PRINTED)
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(home)}
    return Stage(Host(platform, root, home, uid, user, sudo_user, environment), state)
