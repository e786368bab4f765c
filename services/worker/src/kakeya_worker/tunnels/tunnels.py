"""Keeps tunnels to two routers, so that one of these may stop or die."""

import asyncio
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import grpc
import structlog

from kakeya_shared.errors.tree import KakeyaError, PermissionDenied, Unauthenticated, UnknownIncarnation
from kakeya_shared.rpc.tls import ContextTls
from kakeya_stubs.worker.v1 import registry_pb2 as pb
from kakeya_stubs.worker.v1.registry_pb2_grpc import RegistryServiceStub
from kakeya_worker.joining.registration import Registration
from kakeya_worker.joining.router_link import RouterLink, TokenError
from kakeya_worker.metrics import WorkerMetrics
from kakeya_worker.tunnels.network import Network
from kakeya_worker.tunnels.tunnel import Tunnel, TunnelEnded

_log = structlog.get_logger()

NUM_TUNNELS = 2

# Most gaps are short. After two minutes nobody waits for this worker, and thousands may try at once.
_SOON_SECONDS = (0.2, 1.0)
_SOON_FOR_SECONDS = 120.0
_LATER_SECONDS = (10.0, 30.0)


class _Doubled(Exception):
    """Another tunnel ends at the same router: behind one address for all of them, say."""


@dataclass(eq=False)
class Tunnels:
    """Run it beside the registration, which says which routers there are and is told which have a tunnel.

    Args:
        server: the socket of this worker's own server.
        tls: None for plaintext.
    """

    _registration: Registration
    _link: RouterLink
    _server: Path
    _tls: ContextTls | None
    _metrics: WorkerMetrics
    _network: Network = field(default_factory=Network)
    _held: dict[str, Tunnel] = field(default_factory=dict, init=False)  # by the router's name
    _tried: set[str] = field(default_factory=set, init=False)  # addresses, each by one of the loops
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)  # of the network, the next time

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as loops:
            for _ in range(NUM_TUNNELS):
                loops.create_task(self._keep())
            loops.create_task(self._follow_the_network())

    async def _keep(self) -> NoReturn:
        """One tunnel after another."""
        stood_at, told = time.monotonic(), ""
        while True:
            await self._registration.joined.wait()
            changed = self._changed
            for address in self._registration.routers:
                if address in self._tried:
                    continue
                self._tried.add(address)
                try:
                    await self._hold(address)
                except _Doubled as error:
                    told = _tell(told, "no second tunnel", address, error)
                except _HeldError as error:
                    stood_at, told = time.monotonic(), ""
                    _log.warning("a tunnel has ended", router=address, reason=str(error))
                except (TunnelEnded, KakeyaError, TokenError) as error:
                    told = _tell(told, "no tunnel", address, error)
                    if isinstance(error, UnknownIncarnation | PermissionDenied | Unauthenticated):
                        self._registration.join_again()
                finally:
                    self._tried.discard(address)
            bounds = _SOON_SECONDS if time.monotonic() - stood_at < _SOON_FOR_SECONDS else _LATER_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(random.uniform(*bounds)):
                    await changed.wait()

    async def _hold(self, address: str) -> NoReturn:
        """Opens a tunnel and keeps it.

        Raises:
            _HeldError: it stood, and has ended.
            _Doubled, TunnelEnded, KakeyaError, TokenError: it never stood.
        """
        registration = self._registration
        incarnation, identity = registration.incarnation, registration.identity
        begin = pb.TunnelRequest.Begin(pool=identity.pool, worker_id=identity.worker_id, incarnation=incarnation)
        metadata = self._link.token.metadata()
        async with (
            self._link.open(address) as channel,
            Tunnel(RegistryServiceStub(channel), metadata, self._server, self._tls) as tunnel,
        ):
            await tunnel.begin(begin)
            if tunnel.router in self._held:
                raise _Doubled(f"one to {tunnel.router} stands already")
            await self._stand(tunnel, incarnation)

    async def _stand(self, tunnel: Tunnel, incarnation: str) -> NoReturn:
        """Raises _HeldError."""
        self._held[tunnel.router] = tunnel
        self._tell_routers()
        _log.info("a tunnel stands", router=tunnel.router)
        try:
            await tunnel.hold(lambda: self._registration.incarnation == incarnation)
        except (TunnelEnded, KakeyaError, grpc.aio.AioRpcError) as error:
            raise _HeldError(error.message if isinstance(error, KakeyaError) else str(error)) from error
        finally:
            del self._held[tunnel.router]
            self._metrics.ended_tunnels.inc()
            self._tell_routers()

    def _tell_routers(self) -> None:
        self._metrics.tunnels.set(len(self._held))
        self._registration.tell_tunnels(sorted(self._held))

    async def _follow_the_network(self) -> NoReturn:
        """No connection outlives a sleep of the machine, or a change of its addresses: all are made anew at once."""
        while True:
            why = await self._network.changed()
            _log.info(f"{why}; tunnels are made anew", num_tunnels=len(self._held))
            for tunnel in list(self._held.values()):
                await tunnel.end()
            self._changed.set()
            self._changed = asyncio.Event()


class _HeldError(Exception):
    """A tunnel that stood has ended; the message says why."""


def _tell(told: str, what: str, address: str, error: Exception) -> str:
    """Logs what is new; returns what was told last."""
    why = error.message if isinstance(error, KakeyaError) else str(error)
    if f"{what} {address} {why}" != told:
        _log.info(what, router=address, reason=why)
    return f"{what} {address} {why}"
