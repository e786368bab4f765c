"""PING, in Redis' own protocol; this part needs no more of a client."""

import socket
from urllib.parse import unquote, urlsplit

_DEFAULT_PORT = 6379
_TIMEOUT_SECONDS = 3.0


def ping(url: str) -> None:
    """Asks the server at redis://[[USER]:PASSWORD@]HOST[:PORT] whether it serves.

    Raises:
        ValueError: not such a URL.
        OSError: it does not answer PONG; the message says what it answered.
    """
    parts = urlsplit(url)
    if parts.scheme != "redis" or not parts.hostname:
        raise ValueError(f"{url!r} is not redis://HOST:PORT")
    place = (parts.hostname, parts.port or _DEFAULT_PORT)
    with socket.create_connection(place, timeout=_TIMEOUT_SECONDS) as connection:
        if parts.password is not None:
            user = [unquote(parts.username)] if parts.username else []
            _expect("OK", connection, "AUTH", *user, unquote(parts.password))
        _expect("PONG", connection, "PING")


def _expect(answer: str, connection: socket.socket, *words: str) -> None:
    encoded = [word.encode() for word in words]
    request = b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)
    connection.sendall(request)
    line = b""
    while not line.endswith(b"\r\n"):
        received = connection.recv(1)  # one short line; the next answer is not ours to take
        if not received:
            raise OSError("it closed the connection")
        line += received
    said = line.decode(errors="replace").strip()
    if said != f"+{answer}":
        raise OSError(f"it answers {said!r}")
