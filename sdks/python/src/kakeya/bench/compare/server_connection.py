"""A connection to a rival, for one request: blocking, for a thread, and another thread can cut it."""

import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from kakeya.bench.compare.answer import Answer, AnswerReader, RivalFailed, saying
from kakeya.bench.compare.events import Events

CONNECT_SECONDS = 10.0
_MOST_AT_ONCE = 65_536


class ServerConnection:
    """Goes to the host of a URL, with the usual authorities where that is HTTPS; without proxies, which would be
    measured, too.

    Some servers close connections after an answer without saying so. So each request has one of its own, and is
    measured from there on.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname  # noqa: S101  # as `rival` has seen
        if parts.scheme == "https":
            self._connection: HTTPConnection = HTTPSConnection(
                parts.hostname, parts.port, timeout=CONNECT_SECONDS, context=ssl.create_default_context()
            )
        else:
            self._connection = HTTPConnection(parts.hostname, parts.port, timeout=CONNECT_SECONDS)
        self._path = f"{parts.path}/completions"
        self._socket: socket.socket | None = None  # the connection forgets its own when the response begins
        self._is_cut = False

    def post(self, headers: Mapping[str, str], body: bytes) -> tuple[Answer, float]:
        """The answer, and when the request was sent, by time.perf_counter. Connects before, and disconnects.

        Raises:
            RivalFailed: no connection, no answer, half an answer, or one that was cut.
        """
        try:
            self._connect()
            began = time.perf_counter()
            return self._answer(headers, body), began
        except (OSError, HTTPException) as error:
            raise RivalFailed(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from error
        finally:
            self._connection.close()

    def cut(self) -> None:
        """Ends what another thread waits for in `post`."""
        self._is_cut = True
        if self._socket is not None:
            with suppress(OSError):  # it is closed already
                self._socket.shutdown(socket.SHUT_RDWR)

    def _connect(self) -> None:
        self._connection.connect()
        self._socket = self._connection.sock
        self._socket.settimeout(None)  # whoever waits for the answer knows how long
        if self._is_cut:
            raise ConnectionAbortedError("cut before the request was sent")

    def _answer(self, headers: Mapping[str, str], body: bytes) -> Answer:
        self._connection.request("POST", self._path, body, {**headers, "connection": "close"})
        with self._connection.getresponse() as response:
            if response.status != HTTPStatus.OK:
                raise RivalFailed(f"HTTP {response.status}: {saying(response.read(_MOST_AT_ONCE))}")
            events, reader = Events(), AnswerReader()
            while received := response.read1(_MOST_AT_ONCE):
                moment = time.perf_counter()
                for data in events.feed(received):
                    reader.take(data, moment)
            return reader.answer()
