"""Ports for servers that a test starts."""

import itertools
import secrets
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

_FIRST = 12_000
_BLOCK = 200
_NUM_BLOCKS = 100
"""Linux gives ports from 32,768 on to connections and to who asks for any, macOS from 49,152 on."""


def free_port() -> int:
    """One of this host on which nothing listens, and which no other process of tests uses, now or soon.

    A worker may still look for its router where that has ended: were its port given to another test, it would join
    there.
    """
    for port in itertools.islice(_own(), _BLOCK):
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"{_BLOCK} servers of this process are running")


@cache
def _own() -> Iterator[int]:
    """This process's block, round and round: a port comes again after all others.

    A block is taken for as long as its first port is bound.
    """
    start = secrets.randbelow(_NUM_BLOCKS)  # hypothesis seeds what `random` draws from, in all processes alike
    for number in range(_NUM_BLOCKS):
        first = _FIRST + _BLOCK * ((start + number) % _NUM_BLOCKS)
        holder = socket.socket()
        try:
            holder.bind(("127.0.0.1", first))
        except OSError:
            holder.close()
        else:
            _held.append(holder)
            return itertools.cycle(range(first + 1, first + _BLOCK))
    raise AssertionError(f"{_NUM_BLOCKS} processes of tests are running")


_held: list[socket.socket] = []
