"""Options of a connection to a runtime."""

OPTIONS = [
    # A runtime that restarts is back within seconds; gRPC would wait up to two minutes before it looks again.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Finds a peer that vanished without a word while a call waits for it: calls have no deadline of their own.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Breaks are seen per client, not shared with others of the process.
    ("grpc.use_local_subchannel_pool", 1),
]
