"""What MLX runs on, and the memory that it keeps there.

On Macs memory of the GPU that comes and goes, and memory that is wired, are what systems have crashed over. So weights
and slab are allocated once and written in place, the cache is bounded, and nothing is wired (`mx.set_wired_limit`).
"""

import mlx.core as mx
import structlog

_CACHE_LIMIT_BYTES = 256 * 2**20  # what a step frees is small, and the next one takes it again
_log = structlog.get_logger()


def name() -> str:
    """The kind of device and its architecture, on which bits depend."""
    return f"{mx.default_device().type.name} {mx.device_info()['architecture']}"


def limit_cache() -> None:
    """Bounds the memory that was freed and is kept for the next array; else MLX would keep most of the host's."""
    mx.set_cache_limit(_CACHE_LIMIT_BYTES)


def report_memory() -> None:
    """Logs what arrays take, weights and slab above all, and what is kept beside them."""
    _log.info(
        "mlx memory",
        device=name(),
        active_bytes=mx.get_active_memory(),
        cache_bytes=mx.get_cache_memory(),
        cache_limit_bytes=_CACHE_LIMIT_BYTES,
    )
