"""Connections that break, or fall silent while both ends believe in them."""

import asyncio
from contextlib import suppress
from typing import Self


class Link:
    """Forwards connections of `address` to another one, which may come and go. Open it in a running loop.

    What falls silent loses nothing: when it flows again, all that was said arrives, as TCP's repetitions do.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._flows = asyncio.Event()
        self._flows.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def close(self) -> None:
        self._server.close()
        self.flow()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Breaks all connections that there are."""
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
            other_reader, other = await asyncio.open_connection(*self._target)
            self._writers.add(other)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, other))
                group.create_task(self._pump(other_reader, writer))
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

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            await self._flows.wait()
            target.write(data)
            await target.drain()
        raise ConnectionError("closed")  # so that the other direction ends too
