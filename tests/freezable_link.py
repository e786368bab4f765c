"""A TCP link whose far end can stop to answer without a word, as a host does that lost its power or its network."""

import asyncio
from types import TracebackType
from typing import Self


class FreezableLink:
    """Forwards connections of `address` to a port of this host. Use as a context manager.

    Attributes:
        hung_up: set when the server has closed a connection that was frozen.
    """

    def __init__(self, server_address: str) -> None:
        self._port = int(server_address.rpartition(":")[2])
        self._flowing = True
        self.hung_up = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []
        self._pumps: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        for writer in self._writers:
            writer.close()

    def freeze(self) -> None:
        """From now on nothing that one side says reaches the other; the connections stay open."""
        self._flowing = False

    def cut(self) -> None:
        """Breaks the connections, as the end of a process does."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, server_writer]
        self._pumps.append(asyncio.create_task(self._pump(reader, server_writer)))
        self._pumps.append(asyncio.create_task(self._pump(server_reader, writer, ends=self.hung_up)))

    async def _pump(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, ends: asyncio.Event | None = None
    ) -> None:
        try:
            while data := await source.read(65_536):
                if self._flowing:
                    target.write(data)
        except ConnectionError:
            pass  # an end as good as any
        if ends is not None and not self._flowing:
            ends.set()
        elif self._flowing:
            target.close()
