"""What a lane of this stack holds, and for which clients that is enough."""

from collections.abc import Iterable

from kakeya_stubs.admin.v1.admin_pb2 import WorkerStatus

AGENTS = {"opencode": 8_000, "Codex": 10_000, "Claude Code": 19_000}
"""Tokens of system message and tools that a client sends before its user speaks, as they were measured."""

TALK_TOKENS = 4_096
"""What an agent needs beside them, so that it does not forget the file it has just read: a chat's default window."""


def lane_line(workers: Iterable[WorkerStatus], *, is_largest: bool) -> str:
    """For the terminal.

    Args:
        workers: of the stack, at least one; a session may land on that with the smallest lanes.
        is_largest: the window is the largest that fits.
    """
    worker = min(workers, key=_capacity)
    capacity = _capacity(worker)
    suited = [name for name, num_tokens in AGENTS.items() if capacity >= num_tokens + TALK_TOKENS]
    line = f"a lane holds {capacity:,} tokens, which suits {', '.join(['chats', *suited])}"
    if not (lacking := {name: AGENTS[name] for name in AGENTS if name not in suited}):
        return line
    heads = ", ".join(f"{name} {num_tokens:,}" for name, num_tokens in lacking.items())
    needed = max(lacking.values()) + TALK_TOKENS
    cure = "--window max gives as much as fits"
    if is_largest:
        cure = f"{needed:,} need --slab-bytes {_slab_bytes(worker, needed)}, and a model of so many positions"
    return f"{line}. Agents send more before the user speaks ({heads}); {cure}"


def _capacity(worker: WorkerStatus) -> int:
    return worker.sink + worker.window


def _slab_bytes(worker: WorkerStatus, num_tokens: int) -> int:
    """Of as many lanes as it has, each for so many tokens and the same slack."""
    lane_bytes = worker.lane_bytes + (num_tokens - _capacity(worker)) * worker.kv_bytes_per_token
    return worker.num_lanes * lane_bytes
