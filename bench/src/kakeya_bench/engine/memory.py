"""How much memory a process holds at most, as Linux tells it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SAMPLE_SECONDS = 0.01


@contextmanager
def watched(pid: int) -> Iterator[dict[str, int | None]]:
    """Of what happens inside, the peaks of a process are in the document at the end; None where Linux is not there.

    peak_rss_bytes is resident memory, with what is mapped of files; peak_anonymous_bytes is resident memory of its own,
    looked at a hundred times a second.
    """
    found: dict[str, int | None] = {}
    seen, is_over = [_status_bytes(pid, "RssAnon")], threading.Event()

    def watch() -> None:
        while not is_over.wait(_SAMPLE_SECONDS):
            seen.append(_status_bytes(pid, "RssAnon"))

    _forget_peak(pid)
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join()
    found["peak_rss_bytes"] = _status_bytes(pid, "VmHWM")
    found["peak_anonymous_bytes"] = max((each for each in seen if each is not None), default=None)


def _status_bytes(pid: int, field: str) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:")), None)


def _forget_peak(pid: int) -> None:
    """So that VmHWM is the peak from now on."""
    reset = Path(f"/proc/{pid}/clear_refs")
    if reset.exists():
        reset.write_text("5")
