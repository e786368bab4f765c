"""What is fuzzed: a shim in front of a router, a worker with the installed model, and a Redis."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.open_http import open_http
from tests.integration.processes import Runtime

MAX_CHOICES = 8
_SHIM_FLAGS = ("--default-max-tokens=4", f"--max-choices={MAX_CHOICES}", "--session-ttl-seconds=5")
# Room for what is drawn as system messages: those are pinned, and longer ones than a lane holds are refused.
_WINDOW = 1_000


@contextmanager
def stack(logs: Path) -> Iterator[Runtime]:
    """It asks for no keys."""
    with open_http(logs, *_SHIM_FLAGS, lanes=2 * MAX_CHOICES, window=_WINDOW) as made:
        yield made
