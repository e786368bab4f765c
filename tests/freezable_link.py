"""TCP links that break, or fall silent while both ends believe in them."""

import asyncio
from contextlib import suppress
from typing import Self


class Link:
    """Forwards connections of `address` to another one, which may come and go. Use as a context manager, or open it in
    a running loop.

    What falls silent loses nothing: when it flows again, all that was said arrives, as TCP's repetitions do.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._flows = asyncio.Event()
        self._flows.set()
        self._closed = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def close(self) -> None:
        self._server.close()
        self._closed.set()
        self.flow()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def target(self) -> str:
        """Where the next connection leads to. Raises OSError: nowhere."""
        return self._target

    def cut(self) -> None:
        """Breaks all connections that there are, as the end of a process does."""
        for writer in self._writers:
            writer.transport.abort()

    def silence(self) -> None:
        """Nothing that one side says reaches the other until `flow`."""
        self._flows.clear()

    def flow(self) -> None:
        self._flows.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        other = None
        try:
            host, _, port = self.target().rpartition(":")
            other_reader, other = await asyncio.open_connection(host, port)
            self._writers.add(other)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, other, of_server=False))
                group.create_task(self._pump(other_reader, writer, of_server=True))
        except* OSError:
            pass  # nobody is there, or one side broke off: the other is told below
        finally:
            self._tasks.discard(task)
            for end in (writer, other):
                if end is not None:
                    self._writers.discard(end)
                    end.close()
                    with suppress(OSError):
                        await end.wait_closed()

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, of_server: bool) -> None:
        with suppress(ConnectionError):  # an end as good as any
            while data := await source.read(65_536):
                await self._pass_on(data, target)
        await self._end(of_server=of_server)
        raise ConnectionError("closed")  # so that the other direction ends too

    async def _pass_on(self, data: bytes, target: asyncio.StreamWriter) -> None:
        await self._flows.wait()
        target.write(data)
        await target.drain()

    async def _end(self, *, of_server: bool) -> None:
        """One side has ended."""


class FreezableLink(Link):
    """One whose far end can stop to answer without a word, as a host does that lost its power or its network.

    Attributes:
        hung_up: set when the server has closed a connection that was frozen.
    """

    def __init__(self, server_address: str) -> None:
        super().__init__(server_address)
        self._is_frozen = False
        self.hung_up = asyncio.Event()

    def freeze(self) -> None:
        """From now on what one side says is lost; the connections stay open."""
        self._is_frozen = True

    async def _pass_on(self, data: bytes, target: asyncio.StreamWriter) -> None:
        if not self._is_frozen:
            await super()._pass_on(data, target)

    async def _end(self, *, of_server: bool) -> None:
        if self._is_frozen:
            if of_server:
                self.hung_up.set()
            await self._closed.wait()  # the other side is told nothing
