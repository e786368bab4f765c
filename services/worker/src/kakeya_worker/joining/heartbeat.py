"""What a heartbeat says of the lanes."""

from collections.abc import Sequence
from typing import NamedTuple

from kakeya_stubs.worker.v1 import registry_pb2 as pb
from kakeya_worker.engine.lanes.lane_table import LaneReport, SlabTotals
from kakeya_worker.host import resident_memory


class Heartbeat(NamedTuple):
    """One that a router has answered: its number, and the sum over the lanes that it has said."""

    number: int = 0
    kv_live_bytes: int = 0


def of_lanes(totals: SlabTotals, reports: Sequence[LaneReport]) -> pb.HeartbeatRequest:
    """One that says nothing of the worker but its memory."""
    return pb.HeartbeatRequest(
        kv_live_bytes=totals.kv_live_bytes,
        num_lanes_in_use=totals.num_lanes_in_use,
        lanes=[
            pb.LaneReport(
                session_id=report.session_id,
                epoch=report.epoch,
                history_length=report.state.history_length,
                kv_live_bytes=report.state.kv_live_bytes,
                retained=[pb.LaneReport.Range(start=r.start, end=r.stop) for r in report.state.retained],
                num_rewinds=report.state.num_rewinds,
                lane=report.lane,
            )
            for report in reports
        ],
        rss_bytes=resident_memory.rss_bytes(),
    )
