"""Lanes on their way from worker to worker: the content of a snapshot file, in parts."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from io import BytesIO

from kakeya_shared.errors.tree import NoCapacity, SnapshotRefused
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.lane_state import OpenLane
from kakeya_worker.engine.snapshots.snapshot import memory_for
from kakeya_worker.snapshots import snapshot_file

PART_BYTES = 1 << 20
# Each holds as much memory as a lane, for as long as the receiver takes. Only one side has such a bound: with two,
# transfers could wait for each other.
_NUM_READ_AT_ONCE = 4
# Of a file beside K and V: names, sizes and the final hidden vector, and for each token its id and position.
_OVERHEAD_BYTES = 2 << 20
_TOKEN_BYTES = 12
# One of float32 has nearly four times the bytes of one of int8, the smallest type.
_INEXACT_GROWTH = 4


class LaneTransfer:
    """Sends and receives lanes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reading = asyncio.Semaphore(_NUM_READ_AT_ONCE)

    async def read(self, session_id: str, epoch: int) -> AsyncGenerator[bytes, None]:
        """Copies what a session's lane keeps; yields it in parts of at most PART_BYTES.

        Raises:
            SessionNotFound, StaleEpoch
        """
        async with self._reading:
            lane = self._engine.lanes.find(session_id, epoch).lane
            memory = await asyncio.to_thread(memory_for, lane, self._engine.lanes.kv_bytes_per_token)
            taken = await asyncio.to_thread(self._engine.take_snapshot, session_id, epoch, memory=memory)
            for piece in await asyncio.to_thread(snapshot_file.pieces, taken):
                for start in range(0, len(piece), PART_BYTES):
                    yield bytes(piece[start : start + PART_BYTES])

    async def write(
        self,
        session_id: str,
        epoch: int,
        tenant: str,
        parts: AsyncIterator[bytes],
        *,
        inexact: bool = False,
        speculation: str = "",
    ) -> OpenLane:
        """Opens a session with what `read` of another worker has yielded.

        Args:
            inexact: what one of another fingerprint of the model has yielded will do.
            speculation: see `SessionOptions`.

        Raises:
            SnapshotRefused: it is damaged, or not of this fingerprint, or larger than a lane.
            NoCapacity: there is no lane; then nothing is received.
            InvalidField, StaleEpoch, Draining
        """
        totals = self._engine.lanes.totals()
        if totals.num_lanes_in_use == totals.num_lanes and session_id not in self._engine.lanes:
            raise NoCapacity("every lane is in use")
        lane_bytes = totals.lane_bytes * (_INEXACT_GROWTH if inexact else 1)
        most = lane_bytes + self._engine.lanes.geometry.num_slots * _TOKEN_BYTES + _OVERHEAD_BYTES
        content = BytesIO()
        async for part in parts:
            content.write(part)
            if content.tell() > most:
                raise SnapshotRefused(f"it has more than the {most} bytes of a lane")

        def restored() -> OpenLane:
            whole = snapshot_file.opened(content)
            return self._engine.restore(session_id, epoch, [whole], tenant, inexact=inexact, speculation=speculation)

        return await asyncio.to_thread(restored)
