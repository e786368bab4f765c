"""What a Mac says of itself, and what that means for a worker on it: `kakeya doctor` on macOS."""

import json
import platform
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kakeya_local.doctor import local_network
from kakeya_local.doctor.findings import Condition, Finding

_AREA = "mac"
# https://ml-explore.github.io/mlx/build/html/install.html
_OLDEST_MACOS = 14
# A connection takes a file each; launchd begins its processes with 256.
_FEWEST_FILES = 1024
# The first import of MLX after its installation reads all of it.
_COMMAND_SECONDS = 60.0
_GIB = 1 << 30
_MIB = 1 << 20
_LEFT_TO_MACOS_BYTES = 4 << 30
# In a process of its own: MLX ends the one that it cannot find its device in.
_PROBE = """
import json
from importlib.metadata import version
import mlx.core as mx
info = mx.device_info()
print(json.dumps({
    "version": version("mlx"),
    "device": f"{mx.default_device().type.name} {info.get('architecture', '')}".strip(),
    "has_metal": mx.metal.is_available(),
    "wirable_bytes": info.get("max_recommended_working_set_size", 0),
}))
"""


@dataclass(frozen=True)
class MlxFacts:
    """MLX as it is installed.

    Attributes:
        device: its kind and architecture, such as "gpu applegpu_g16s".
        wirable_bytes: of memory that the system lets the GPU keep resident; 0: not known.
        problem: why it cannot be imported; then nothing else is known.
    """

    version: str = ""
    device: str = ""
    has_metal: bool = False
    wirable_bytes: int = 0
    problem: str = ""


@dataclass(frozen=True)
class MacFacts:
    """A Mac, and this Python on it.

    Attributes:
        macos: its version, such as "15.1".
        machine: what this Python was built for: arm64 or x86_64.
        has_apple_silicon: whatever this Python was built for.
        wired_limit_mb: of the GPU's memory, as an administrator has set it; 0: the system's own.
        idle_minutes: after which it sleeps; 0: never; None: not known.
        num_files: that a process may have open.
        agents: Kakeya's services that launchd starts for this user, by name.
    """

    macos: str
    machine: str
    has_apple_silicon: bool
    memory_bytes: int
    wired_limit_mb: int
    idle_minutes: int | None
    num_files: int
    mlx: MlxFacts
    agents: tuple[str, ...] = ()


def examine() -> Iterator[Finding]:
    """What there is to say of this Mac."""
    return findings(read_facts())


def read_facts() -> MacFacts:
    """Asks this Mac. What one of its commands does not tell counts as not set."""
    pmset = re.search(r"^\s*sleep\s+(\d+)", _output("pmset", "-g"), re.MULTILINE)
    return MacFacts(
        macos=platform.mac_ver()[0],
        machine=platform.machine(),
        has_apple_silicon=_sysctl("hw.optional.arm64") == 1,
        memory_bytes=_sysctl("hw.memsize"),
        wired_limit_mb=_sysctl("iogpu.wired_limit_mb"),
        idle_minutes=int(pmset[1]) if pmset else None,
        num_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        mlx=read_mlx(),
        agents=tuple(
            sorted(plist.stem for plist in Path("~/Library/LaunchAgents").expanduser().glob("kakeya-*.plist"))
        ),
    )


def read_mlx() -> MlxFacts:
    """Has MLX imported by a process of its own."""
    try:
        done = subprocess.run(  # noqa: S603  # this Python, and a text of ours
            [sys.executable, "-P", "-c", _PROBE], capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return MlxFacts(problem=f"it is not imported within {_COMMAND_SECONDS:g} s")
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return MlxFacts(problem=lines[-1] if lines else f"exit status {done.returncode}")
    return MlxFacts(**json.loads(done.stdout))


def findings(facts: MacFacts) -> Iterator[Finding]:
    """What the facts mean for a worker with MLX, and for a service that is to be there always."""
    yield _macos(facts)
    yield _python(facts)
    yield from _mlx(facts)
    yield _sleep(facts)
    yield _files(facts)
    yield from _local_network(facts)


def _macos(facts: MacFacts) -> Finding:
    major = int(facts.macos.partition(".")[0] or 0)
    if major < _OLDEST_MACOS:
        found = f"{facts.macos or 'unknown'}: MLX needs {_OLDEST_MACOS} or newer"
        return Finding(_AREA, "macos", Condition.ABSENT, found, "update macOS")
    return Finding(_AREA, "macos", Condition.OK, facts.macos)


def _python(facts: MacFacts) -> Finding:
    if facts.machine == "arm64":
        return Finding(_AREA, "architecture", Condition.OK, "Apple silicon, native Python")
    if facts.has_apple_silicon:
        found = f"this Python is one for {facts.machine}, under Rosetta: MLX cannot be installed into it"
        cure = "make the environment with a native Python (`file $(which python3)` says arm64)"
    else:
        found, cure = f"{facts.machine}: MLX needs Apple silicon", "let another machine be the worker"
    return Finding(_AREA, "architecture", Condition.ABSENT, found, cure)


def _mlx(facts: MacFacts) -> Iterator[Finding]:
    mlx = facts.mlx
    if mlx.problem:
        yield Finding(_AREA, "mlx", Condition.ABSENT, mlx.problem, "pip install 'kakeya-worker[mlx]'")
        return
    if not mlx.has_metal:
        found = f"{mlx.version} computes on {mlx.device}: it sees no Metal device"
        yield Finding(_AREA, "mlx", Condition.ABSENT, found, "run it on the Mac itself, in no container or bare VM")
        return
    yield Finding(_AREA, "mlx", Condition.OK, f"{mlx.version} on {mlx.device}, by Metal")
    yield _gpu_memory(facts)


def _gpu_memory(facts: MacFacts) -> Finding:
    """Weights and slab should fit into what may be wired."""
    sizes = f"{facts.mlx.wirable_bytes / _GIB:.1f} of {facts.memory_bytes / _GIB:.1f} GiB may be wired"
    if facts.wired_limit_mb:
        origin = f"iogpu.wired_limit_mb is {facts.wired_limit_mb}, until the next start"
        if facts.memory_bytes - facts.wired_limit_mb * _MIB < _LEFT_TO_MACOS_BYTES:
            cure = (
                "sudo sysctl iogpu.wired_limit_mb=0, and fewer lanes or a smaller model: what is wired is not swapped"
            )
            return Finding(_AREA, "gpu memory", Condition.ABSENT, f"{sizes} ({origin}): too little is left", cure)
    else:
        origin = "the system's choice"
    return Finding(_AREA, "gpu memory", Condition.OK, f"{sizes} ({origin})")


def _sleep(facts: MacFacts) -> Finding:
    if facts.idle_minutes is None:
        return Finding(_AREA, "sleep", Condition.ABSENT, "unknown: pmset does not say", "see `pmset -g`")
    if facts.idle_minutes:
        found = f"after {facts.idle_minutes} idle minutes, and the sessions of its worker wait or go elsewhere"
        return Finding(_AREA, "sleep", Condition.ABSENT, found, "sudo pmset -a sleep 0, or `caffeinate -is COMMAND`")
    return Finding(_AREA, "sleep", Condition.OK, "never by itself")


def _files(facts: MacFacts) -> Finding:
    found = f"{facts.num_files} in a process"
    if facts.num_files < _FEWEST_FILES:
        cure = "ulimit -n 4096; for a launchd service SoftResourceLimits, NumberOfFiles in its plist"
        return Finding(_AREA, "open files", Condition.ABSENT, found, cure)
    return Finding(_AREA, "open files", Condition.OK, found)


def _local_network(facts: MacFacts) -> Iterator[Finding]:
    """What this command reaches from Terminal says nothing of agents."""
    if facts.agents and int(facts.macos.partition(".")[0] or 0) >= local_network.SINCE_MACOS:
        found = f"{', '.join(facts.agents)}: macOS keeps agents from hosts of the local network that it is not told of"
        yield Finding(_AREA, "local network", Condition.ABSENT, found, local_network.CURE)


def _sysctl(name: str) -> int:
    """0 where it is not set, or there is none of this name."""
    text = _output("sysctl", "-n", name).strip()
    return int(text) if text.isdecimal() else 0


def _output(*command: str) -> str:
    """What a command prints; nothing where it is missing, fails or hangs."""
    try:
        done = subprocess.run(  # noqa: S603  # commands of ours
            command, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
