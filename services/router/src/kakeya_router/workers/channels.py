"""gRPC's channels to workers, and how soon they notice that one is gone or back."""

from pathlib import Path

import grpc

from kakeya_shared.rpc.tls import open_channel, open_socket

# A worker that vanished without a goodbye is noticed by keepalive; one that came back is found within a second.
_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),  # a new worker at an old one's address does not inherit its back-off
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # a minute, else
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]

# A door opens once the worker's tunnel stands: until then a call waits, until it is ended or its time is over.
_OPTIONS_OF_DOORS = [*_OPTIONS[:-2], ("grpc.min_reconnect_backoff_ms", 60_000), _OPTIONS[-1]]


def to_worker(address: str, credentials: grpc.ChannelCredentials | None) -> grpc.aio.Channel:
    """In plaintext without credentials."""
    return open_channel(address, credentials, _OPTIONS)


def to_door(path: Path) -> grpc.aio.Channel:
    """To a worker that is reached through tunnels."""
    return open_socket(path, _OPTIONS_OF_DOORS)
