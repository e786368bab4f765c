"""What everything in a router stands on."""

from kakeya_router.live.board import Board
from kakeya_router.metrics import RouterMetrics
from kakeya_router.operations.renewals import RENEWED_EACH
from kakeya_router.settings import RouterSettings
from kakeya_router.snapshots.snapshotting import Snapshotting
from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.script_calls import in_ms
from kakeya_router.stores import Stores
from kakeya_router.tunnels.doors import Doors
from kakeya_router.tunnels.tunnel_port import TunnelPort
from kakeya_router.tunnels.tunnels import Tunnels
from kakeya_router.tunnels.ways import Ways
from kakeya_router.workers import placement
from kakeya_router.workers.fleet import Fleet
from kakeya_router.workers.placement import Placement
from kakeya_router.workers.probing import Probing
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_shared import plugins
from kakeya_shared.metrics.meters import Meters
from kakeya_shared.process.detached_tasks import DetachedTasks
from kakeya_shared.rpc.otlp import METRICS
from kakeya_shared.rpc.tls import ContextTls, client_tls
from kakeya_shared.settings.addresses import NOWHERE

_LEASES_MISSED = 3
_RENEWALS_MISSED = 2
# How often a router looks at the workers and whether Redis serves: what no heartbeat tells it.
_LOOK_SECONDS = 1.0
# A worker is late whose last heartbeat is older than so many of their intervals, and than a busy machine's pause.
_LATE_INTERVALS, _LATE_SECONDS = 2.5, 3.0


class Base:
    """Metrics, Redis, tasks; workers as they are now, and the ways to them; what viewers see; snapshots."""

    def __init__(self, settings: RouterSettings) -> None:
        """Raises PluginError, TlsError."""
        self.metrics = metrics = RouterMetrics(Meters(is_on=settings.metrics_bind != NOWHERE or METRICS.is_wanted()))
        self.look_seconds = min(settings.heartbeat_interval_seconds, _LOOK_SECONDS)
        self.grace_seconds = _LEASES_MISSED * settings.heartbeat_interval_seconds
        self.redis = RedisConnection(
            settings.redis,
            settings.redis_timeout_seconds,
            directory=settings.redis_directory,
            metrics=metrics,
            num_replicas=settings.redis_replicas,
        )
        self.tasks = DetachedTasks()
        # Operations are renewed more often than workers' leases.
        operation_grace = min(self.grace_seconds, _RENEWALS_MISSED * RENEWED_EACH * settings.operation_lease_seconds)
        self.stores = Stores(settings, self.redis, self.tasks, operation_grace)
        self.tunnels = Tunnels(metrics)
        self.ways = Ways(
            self.tunnels,
            self.stores.tunnels,
            lambda incarnation: self.fleet.looked_up(incarnation),
            _tls_to_routers(settings),
        )
        self.tunnel_port = TunnelPort(self.tunnels, self.ways, _tls_of_port(settings))
        tls = client_tls(settings.worker_ca, settings.tls_cert, settings.tls_key)
        self.workers = WorkerClients(tls, Doors(self.ways.dial))
        self.placement: Placement = plugins.load(placement.GROUP, settings.placement)()
        self.fleet = Fleet(
            self.stores.workers,
            self.stores.fleet,
            self.tasks,
            placement.some_of(self.placement),
            self.workers.see,
            interval_seconds=self.look_seconds,
        )
        self.probing = Probing(self.workers.probe, settings.worker_silence_seconds)
        late_ms = in_ms(max(_LATE_SECONDS, _LATE_INTERVALS * settings.heartbeat_interval_seconds))
        self.board = Board.over(self.redis, self.fleet, settings.redis, settings.redis_timeout_seconds, late_ms)
        self.snapshotting = Snapshotting(
            self.stores.snapshots,
            self.workers,
            self.fleet,
            self.tasks,
            turns=settings.snapshot_turns,
            recovery_seconds=settings.recovery_seconds,
            journal_tokens=max(settings.journal_tokens, settings.max_append_tokens),
            metrics=metrics,
        )


def _tls_to_routers(settings: RouterSettings) -> ContextTls | None:
    """Raises TlsError."""
    if settings.tunnel_ca is None:
        return None
    return ContextTls.of_client(settings.tunnel_ca, settings.tls_cert, settings.tls_key)


def _tls_of_port(settings: RouterSettings) -> ContextTls | None:
    """Raises TlsError."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return ContextTls.of_server(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
