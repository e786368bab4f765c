"""Ports for servers that a test starts."""

import secrets
import socket
from contextlib import suppress

_FIRST = 12_000
_NUM = 20_000
"""Linux gives ports from 32,768 on to connections and to who asks for any, macOS from 49,152 on."""


def free_port() -> int:
    """One of this host on which nothing listens.

    The system gives it to no other process meanwhile: two that ask for any get the same one now and then, where one of
    them has let it go again to use it in a moment.
    """
    while True:
        port = _FIRST + secrets.randbelow(_NUM)  # hypothesis seeds what `random` draws from, in all processes alike
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
