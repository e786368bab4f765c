"""A whole stack that speaks HTTP and asks nobody for a key: kakeya-nano on one worker, a router, `kakeya http`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kakeya_shared import installed_models
from tests.integration.processes import WINDOW, Runtime, runtime

MODEL = "kakeya-nano"
ENDLESS = {"2041": -100, "2043": -100}
"""The logit bias of an answer that ends by its length alone: its model's tokens that end one never come."""
_ROUTER_FLAGS = ("--reap-interval-seconds=0.2", "--heartbeat-interval-seconds=0.2")


@contextmanager
def open_http(logs: Path, *shim_flags: str, lanes: int, window: int = WINDOW) -> Iterator[Runtime]:
    """In exact mode, so that equal seeds give equal answers; stopped at the end."""
    model = installed_models.directory(MODEL)
    with runtime(model, logs, num_workers=0, router_flags=_ROUTER_FLAGS) as made:
        made.start_worker("--weights=int8", f"--window={window}", lanes=lanes)
        made.start_http(*shim_flags)
        made.wait_for_workers(1)
        yield made
