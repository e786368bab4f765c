"""Lanes on their way from worker to worker: the content of a snapshot file, in parts."""

import asyncio
from collections.abc import AsyncIterator

from kakeya_shared.errors import SnapshotRefused
from kakeya_worker import snapshot_file
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.operation import OpenLane

PART_BYTES = 1 << 20
# Of a file beside K and V: names, sizes and the final hidden vector, and for each token its id and position.
_OVERHEAD_BYTES = 2 << 20
_TOKEN_BYTES = 12


async def read(engine: Engine, session_id: str, epoch: int) -> AsyncIterator[bytes]:
    """Copies what a session's lane keeps, between two steps; yields it in parts of PART_BYTES.

    Raises:
        SessionNotFound, StaleEpoch
    """
    taken = await asyncio.wrap_future(engine.take_snapshot(session_id, epoch))
    content = memoryview(await asyncio.to_thread(snapshot_file.encode, taken))
    for start in range(0, len(content), PART_BYTES):
        yield bytes(content[start : start + PART_BYTES])


async def write(engine: Engine, session_id: str, epoch: int, tenant: str, parts: AsyncIterator[bytes]) -> OpenLane:
    """Opens a session with what `read` of another worker has yielded.

    Raises:
        SnapshotRefused: it is damaged, or not of this fingerprint, or larger than a lane.
        InvalidField, NoCapacity, StaleEpoch, Draining
    """
    content, most = bytearray(), _most_bytes(engine)
    async for part in parts:
        content += part
        if len(content) > most:
            raise SnapshotRefused(f"it has more than the {most} bytes of a lane")
    whole = await asyncio.to_thread(snapshot_file.decode, content)
    return await asyncio.wrap_future(engine.restore(session_id, epoch, whole, tenant))


def _most_bytes(engine: Engine) -> int:
    return engine.lanes.totals().lane_bytes + engine.lanes.geometry.num_slots * _TOKEN_BYTES + _OVERHEAD_BYTES
