"""What each part of the proof runs on: one worker of kakeya-nano, a router, and shims side by side."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kakeya_shared import installed_models
from tests.integration.open_http import MODEL
from tests.integration.otlp_receiver import OtlpReceiver, otlp_receiver
from tests.integration.processes import SINK, WINDOW, Runtime, runtime

# Of whole runs: none of their spans is dropped.
_MANY_SPANS = {"OTEL_BSP_MAX_QUEUE_SIZE": "65536"}


@dataclass
class Ground:
    """Attributes:
    shim_flags: of those that take a shim's place.
    store: the worker's snapshot store; None: it has none.
    receiver: has the spans of router and worker; None: they make none.
    """

    made: Runtime
    shim_flags: Sequence[str]
    store: Path | None
    receiver: OtlpReceiver | None

    @property
    def addresses(self) -> list[str]:
        """Of the shims that are there."""
        return [shim.address for shim in self.made.shims]

    def files(self) -> list[Path]:
        """Of the snapshot store, those that are half written, too; but not the one that names the store."""
        if self.store is None:
            return []
        return [path for path in self.store.rglob("*") if path.is_file() and not path.name.endswith("store-id")]

    def num_stored_bytes(self) -> int:
        """In the snapshot store."""
        found = 0
        for path in self.files():
            try:
                found += path.stat().st_size
            except FileNotFoundError:  # removed meanwhile
                continue
        return found

    def left_files(self) -> list[str]:
        return [f"the snapshot file {path.name}" for path in self.files()]


@contextmanager
def ground(
    directory: Path,
    *shim_flags: str,
    lanes: int,
    window: int = WINDOW,
    num_shims: int = 2,
    router_flags: tuple[str, ...] = (),
    stores: bool = False,
    traces: bool = False,
) -> Iterator[Ground]:
    """In exact mode, so that equal histories have equal answers; stopped at the end.

    Args:
        stores: the worker has a snapshot store.
        traces: router and worker say what they do.
    """
    directory.mkdir(parents=True, exist_ok=True)
    model = _model(directory, window)
    store = directory / "snapshots" if stores else None
    with ExitStack() as stack:
        receiver = stack.enter_context(otlp_receiver()) if traces else None
        environment = receiver.environment() | _MANY_SPANS if receiver else {}
        made = stack.enter_context(
            runtime(model, directory, num_workers=0, router_flags=router_flags, environment=environment)
        )
        to_store = (f"--snapshots={store}",) if store else ()
        made.start_worker("--weights=int8", f"--window={window}", *to_store, lanes=lanes)
        made.wait_for_workers(1)
        made.environment.clear()  # shims would be the roots of what is traced
        for _ in range(num_shims):
            made.start_http(*shim_flags)
        yield Ground(made, shim_flags, store, receiver)


def _model(directory: Path, window: int) -> Path:
    """kakeya-nano; where a window needs more positions than it has, with so many: its answers are worth less then, and
    cost the same.
    """
    model = installed_models.directory(MODEL)
    config = json.loads((model / "config.json").read_text())
    if window + SINK <= config["max_position_embeddings"]:
        return model
    longer = directory / MODEL
    shutil.copytree(model, longer, dirs_exist_ok=True)
    (longer / "config.json").write_text(json.dumps({**config, "max_position_embeddings": window + SINK}))
    return longer
