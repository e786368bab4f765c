"""Commands as hiredis writes them, in C: redis-py does so for its blocking connections alone.

One of twenty arguments costs 7 us of processor time so, and 50 argument by argument in Python; a request has a dozen.
"""

from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection


class _Packed:
    """Stands in front of one of redis-py's classes of connections."""

    def pack_command(self, *args: Any) -> list[bytes]:
        """The first argument may be of several words, as redis-py's own are ("CLIENT SETINFO")."""
        command, *rest = args
        return [hiredis.pack_command((*command.split(), *rest))]


def packed(connection: type[AbstractConnection]) -> type[AbstractConnection]:
    """The class of connections that differs in this alone."""
    return type(f"Packed{connection.__name__}", (_Packed, connection), {})
