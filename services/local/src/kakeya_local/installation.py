"""What is installed on this machine."""

import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import psutil

from kakeya_local.errors import StackError
from kakeya_local.findings import Condition, Finding
from kakeya_local.processors import num_processors
from kakeya_local.redis_binary import find_redis, redis_version
from kakeya_shared import plugins

_AREA = "installed"
# The parts, and what each is for.
_PARTS = {
    "kakeya": "SDK and command",
    "kakeya-stubs": "contracts",
    "kakeya-shared": "shared by services",
    "kakeya-router": "session router",
    "kakeya-worker": "verifier worker",
    "kakeya-local": "local stack",
}
# Seams with plugins, and the line that installs what a built-in of that seam needs.
_SEAMS = {
    "kakeya.verifier": "pip install 'kakeya-worker[{name}]'",
    "kakeya.placement": "pip install kakeya-router",
}


def examine() -> Iterator[Finding]:
    """Parts, plugins, Redis and the machine."""
    yield Finding(_AREA, "python", Condition.OK, f"{platform.python_version()} on {platform.platform()}")
    memory_gib = psutil.virtual_memory().total / 2**30
    processors = f"{num_processors()} of {os.cpu_count()} processors, {memory_gib:.1f} GiB memory"
    yield Finding(_AREA, "machine", Condition.OK, processors)
    for part, purpose in _PARTS.items():
        yield _distribution(part, purpose, f"pip install {part}")
    yield _distribution("torch", "needed by the torch verifier", "pip install 'kakeya-worker[torch]'")
    for seam, install in _SEAMS.items():
        for name in plugins.names(seam):
            yield _plugin(seam, name, install.format(name=name))
    yield _redis()


def _distribution(name: str, purpose: str, install: str) -> Finding:
    try:
        return Finding(_AREA, name, Condition.OK, f"{version(name)} ({purpose})")
    except PackageNotFoundError:
        return Finding(_AREA, name, Condition.ABSENT, purpose, install)


def _plugin(seam: str, name: str, install: str) -> Finding:
    subject = f"{seam} {name}"
    try:
        plugins.load(seam, name)
    except plugins.PluginError as error:
        return Finding(_AREA, subject, Condition.ABSENT, str(error), install)
    return Finding(_AREA, subject, Condition.OK, "loads")


def _redis() -> Finding:
    try:
        path = find_redis()
    except StackError as error:
        problem, _, cure = str(error).partition("; ")
        return Finding(_AREA, "redis-server", Condition.ABSENT, problem, cure)
    return Finding(_AREA, "redis-server", Condition.OK, f"{redis_version(path)} at {path}")
