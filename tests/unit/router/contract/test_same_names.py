"""What a worker may say of itself when it joins: the fields that a message and a record share by name."""

from dataclasses import fields

from kakeya_router.store.worker_record import WorkerRecord
from kakeya_stubs.worker.v1 import registry_pb2

LEDGER = {
    "reserved_bytes",
    "kv_live_bytes",
    "reported_kv_live_bytes",
    "rss_bytes",
    "num_sessions",
    "heartbeat_ms",
    "heartbeat_number",
    "token_id",
    "tunnels",
    "leaving",
    "drain_asked",
}
"""Of a worker's record: kept by the router."""


def test_a_worker_that_joins_says_all_of_itself_and_nothing_of_its_ledger() -> None:
    said = {field.name for field in registry_pb2.JoinRequest.DESCRIPTOR.fields}
    kept = {field.name for field in fields(WorkerRecord)}
    assert kept - said == LEDGER
