"""When tunnels stood, as the routers' logs say."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

_SILENCE_SECONDS = 4.0  # in which a tunnel that is dead is found out


@dataclass(frozen=True)
class Change:
    """A tunnel of a worker at one router: it stands from then on, or has ended."""

    at: float
    router: str
    stands: bool


def changes(logs: Sequence[Path], worker_id: str) -> list[Change]:
    """All of a worker's, in their order; times in seconds since the epoch."""
    found = [change for log in logs for change in _of_log(log, worker_id)]
    return sorted(found, key=lambda change: change.at)


def _of_log(log: Path, worker_id: str) -> Iterator[Change]:
    for line in log.read_text().splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("worker_id") == worker_id and event.get("event") in ("a tunnel stands", "a tunnel has ended"):
            at = datetime.fromisoformat(event["timestamp"]).timestamp()
            yield Change(at, log.stem, event["event"] == "a tunnel stands")


def seconds_until_back(found: Sequence[Change], mended_at: float) -> float | None:
    """From a link's return to the moment from which one tunnel of the worker stood for good; None: it never did.

    Args:
        found: the worker's changes until its link was cut again.
    """
    standing: dict[str, int] = {}
    for change in found:
        if change.at > mended_at:
            break
        standing[change.router] = standing.get(change.router, 0) + (1 if change.stands else -1)
    since: float | None = 0.0 if any(number > 0 for number in standing.values()) else None
    for change in found:
        if not mended_at < change.at:
            continue
        standing[change.router] = standing.get(change.router, 0) + (1 if change.stands else -1)
        is_up = any(number > 0 for number in standing.values())
        if is_up and since is None:
            since = change.at - mended_at
        elif not is_up and change.at - mended_at <= _SILENCE_SECONDS:
            since = None
    return since
