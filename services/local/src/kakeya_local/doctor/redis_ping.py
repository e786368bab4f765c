"""PING, in Redis' own protocol; this part needs no more of a client."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kakeya_shared.settings.redis_url import TIMEOUT_SECONDS, Kind, RedisUrl


def ping(text: str) -> str:
    """Asks the server at a URL whether it serves: with Sentinel the primary, of a Cluster the first that answers.

    Returns:
        The policy by which it drops keys when its memory is full; empty: it drops none, or does not say.

    Raises:
        ValueError: not such a URL.
        OSError: it does not answer PONG; the message says what it answered.
    """
    url = RedisUrl.parse(text)
    if url.kind is Kind.SENTINEL:
        return ping(_first(url, _primary))
    if url.kind is Kind.CLUSTER:
        return _first(url, lambda url, host, port: ping(url.server(host, port)))
    with _connected(url) as connection:
        if url.password:
            user = [url.username] if url.username else []
            _expect("OK", connection, "AUTH", *user, url.password)
        if url.db:
            _expect("OK", connection, "SELECT", str(url.db))
        _expect("PONG", connection, "PING")
        return _eviction_policy(connection)


def _first(url: RedisUrl, ask: Callable[[RedisUrl, str, int], str]) -> str:
    """What the first says that answers. Raises OSError, the last one's."""
    failure = OSError("no host")
    for host, port in url.places:
        try:
            return ask(url, host, port)
        except OSError as error:
            failure = error
    raise failure


def _primary(url: RedisUrl, host: str, port: int) -> str:
    """The URL of the primary that a Sentinel names."""
    with _connected(RedisUrl.parse(url.sentinel(host, port))) as connection:
        if url.sentinel_password:
            user = [url.sentinel_username] if url.sentinel_username else []
            _expect("OK", connection, "AUTH", *user, url.sentinel_password)
        said = _asked(connection, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", url.name)
        if said != "*2":
            raise OSError(f"Sentinel knows no primary of this name: it answers {said!r}")
        _, named_host, _, named_port = (_line(connection) for _ in range(4))  # each behind its length
        return url.server(named_host, int(named_port))


@contextmanager
def _connected(url: RedisUrl) -> Iterator[socket.socket]:
    if url.path:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT_SECONDS)
            connection.connect(url.path)
            yield connection
        return
    with socket.create_connection((url.host, url.port), timeout=TIMEOUT_SECONDS) as plain:
        if url.tls is None:
            yield plain
            return
        with url.tls.wrap_socket(plain, server_hostname=url.host) as connection:
            yield connection


def _eviction_policy(connection: socket.socket) -> str:
    head = _asked(connection, "INFO", "memory")
    if not head.startswith("$"):  # it may not be asked that
        return ""
    num_left, text = int(head[1:]) + 2, b""
    while num_left > len(text):
        received = connection.recv(num_left - len(text))
        if not received:
            raise OSError("it closed the connection")
        text += received
    facts = dict(line.split(":", 1) for line in text.decode(errors="replace").splitlines() if ":" in line)
    policy = facts.get("maxmemory_policy", "")
    return policy if facts.get("maxmemory", "0") != "0" and policy != "noeviction" else ""


def _expect(answer: str, connection: socket.socket, *words: str) -> None:
    said = _asked(connection, *words)
    if said != f"+{answer}":
        raise OSError(f"it answers {said!r}")


def _asked(connection: socket.socket, *words: str) -> str:
    """The first line of what it answers."""
    encoded = [word.encode() for word in words]
    request = b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)
    connection.sendall(request)
    return _line(connection)


def _line(connection: socket.socket) -> str:
    line = b""
    while not line.endswith(b"\r\n"):
        received = connection.recv(1)  # one short line; the next answer is not ours to take
        if not received:
            raise OSError("it closed the connection")
        line += received
    return line.decode(errors="replace").strip()
