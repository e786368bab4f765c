"""Where a bench ran."""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_DISTRIBUTIONS = ("kakeya-worker", "numpy", "tokenizers", "torch", "transformers")


def environment(num_threads: int) -> dict[str, object]:
    """What figures of speed and of float modes depend on."""
    return {
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu": _cpu(),
        "num_threads": num_threads,
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
