"""Options of a connection to a runtime."""

from kakeya._transport import _proxy

OPTIONS = [
    # A runtime that restarts is back within seconds; gRPC would wait up to two minutes before it looks again.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Finds a peer that vanished without a word while a call waits for it: calls have no deadline of their own.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),  # where gRPC sees a ping unanswered; a minute, else
    # A stream that nobody reads takes in twice this much, 64 plain tokens of 8 bytes, and then its row at the worker
    # pauses: where a read has waited, gRPC has a second window ready, which goes out with the next ping. By gRPC's own
    # measure it would be 4 MB, 466,000 tokens. On a link of 50 ms each way it lets 300 plain tokens a second through,
    # 39 with 5 logprobs and 19 with 20 (measured); other answers of any size take some round trips more.
    ("grpc.http2.lookahead_bytes", 256),
    ("grpc.http2.bdp_probe", 0),  # or the measure grows
    # Breaks are seen per client, not shared with others of the process.
    ("grpc.use_local_subchannel_pool", 1),
]


def options(address: str) -> list[tuple[str, int]]:
    """Of a channel to this address."""
    return OPTIONS + _proxy.options(address)
