"""Where a bench ran."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_DISTRIBUTIONS = (
    "kakeya",
    "kakeya-router",
    "kakeya-worker",
    "kakeya-http-shim",
    "numpy",
    "tokenizers",
    "torch",
    "transformers",
)


def environment() -> dict[str, object]:
    """What figures of speed depend on, of the host that the bench runs on; versions are of what is installed there."""
    import psutil

    return {
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu": _cpu(),
        "num_processors": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "python": platform.python_version(),
        "versions": {name: known for name in _DISTRIBUTIONS if (known := _version(name))},
    }


def _cpu() -> str:
    """Its name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
