"""The clients of all workers, by their addresses."""

import asyncio
from collections.abc import Mapping
from typing import Any

import structlog

from kakeya_router.store.session_record import TUNNELLED, Incarnation, SessionRecord
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_router.tunnels.doors import Doors
from kakeya_router.workers.worker_client import WorkerClient
from kakeya_router.workers.worker_errors import WorkerError
from kakeya_shared.contract.features import ANSWER_STREAM
from kakeya_shared.errors.tree import KakeyaError
from kakeya_shared.rpc.tls import ClientTls

_log = structlog.get_logger()

_CLOSE_SECONDS = 10.0


class WorkerClients:
    """One client for each address, made when it is first needed, and made anew when the TLS files have changed.

    Args:
        tls: None for plaintext.
        doors: to workers behind tunnels.
    """

    def __init__(self, tls: ClientTls | None = None, doors: Doors | None = None) -> None:
        self._tls = tls
        self._doors = doors
        self._clients: dict[str, WorkerClient] = {}
        self._replaced: list[WorkerClient] = []
        self._workers: Mapping[str, WorkerRecord] = {}

    def at(self, address: str) -> WorkerClient:
        client = self._clients.get(address)
        if self._doors is not None and address.startswith(TUNNELLED):
            if client is None:
                client = self._made(address, door=self._doors.path(_incarnation(address)))
            return client
        credentials = None if self._tls is None else self._tls.credentials()
        if client is None or client.credentials is not credentials:
            if client is not None:
                self._replaced.append(client)
            client = self._made(address, credentials=credentials)
        return client

    def see(self, workers: Mapping[str, WorkerRecord]) -> None:
        """Told by address which workers there are: what is asked of one that was there and is gone is ended, since it
        may hang.
        """
        self._workers = workers
        for address, client in self._clients.items():
            client.see(is_there=address in workers, streams_answers=self._streams_answers(address))

    def probe(self, most_missed: float) -> frozenset[str]:
        """One pass more has gone by, see `Answers`; the addresses of workers that are silent. What is asked of them is
        ended.
        """
        for client in self._clients.values():
            if client.is_waited_for or (client.idle and not client.answers.is_silent):
                client.answers.forget()
            else:
                client.answers.miss(most_missed)
        silent = {address: client for address, client in self._clients.items() if client.answers.is_silent}
        for client in silent.values():
            client.end_asked()
        return frozenset(silent)

    async def retain(self) -> None:
        """Closes the idle channels to workers that are gone, and those that were replaced."""
        gone = [address for address, client in self._clients.items() if client.idle and client.is_gone]
        closing = [self._clients.pop(address) for address in gone]
        if self._doors is not None:
            for address in gone:
                await self._doors.close(_incarnation(address))
        closing += [client for client in self._replaced if client.idle]
        self._replaced = [client for client in self._replaced if not client.idle]
        await asyncio.gather(*(client.aclose() for client in closing))

    async def aclose(self) -> None:
        await asyncio.gather(*(client.aclose() for client in (*self._clients.values(), *self._replaced)))
        self._clients.clear()
        self._replaced.clear()
        if self._doors is not None:
            await self._doors.aclose()

    async def close_lane(self, record: SessionRecord) -> None:
        """Has the worker of a record free the lane, which is not the session's any more.

        One that does not answer learns it from the orphans of its next complete heartbeat.
        """
        try:
            await self.at(record.address).close_session(record, _CLOSE_SECONDS)
        except (WorkerError, KakeyaError) as error:
            _log.info("a lane is not freed yet", session_id=record.session_id, error=repr(error))

    def _made(self, address: str, **way: Any) -> WorkerClient:
        client = WorkerClient(address, **way, streams_answers=self._streams_answers(address))
        self._clients[address] = client
        return client

    def _streams_answers(self, address: str) -> bool:
        worker = self._workers.get(address)
        return worker is not None and not worker.lacks((ANSWER_STREAM,))


def _incarnation(address: str) -> Incarnation:
    return Incarnation(address.removeprefix(TUNNELLED))
