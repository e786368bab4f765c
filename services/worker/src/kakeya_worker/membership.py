"""How a worker takes part in a runtime, as its settings have it: where it listens, its way to routers, who it is."""

import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import structlog

from kakeya_shared.process.service_process import StartError
from kakeya_shared.rpc.tls import ContextTls, TlsError, client_tls
from kakeya_shared.settings.addresses import HostPort, is_loopback, parse_list
from kakeya_worker.grammars.grammars import Grammars
from kakeya_worker.joining.router_link import JoinToken, RouterLink, TokenError
from kakeya_worker.joining.worker_identity import WorkerIdentity
from kakeya_worker.settings import WorkerSettings
from kakeya_worker.snapshots.snapshot_store import SnapshotStore

_log = structlog.get_logger()


class Way(NamedTuple):
    """To the routers; `tls` of tunnels, None for plaintext or where there are none."""

    link: RouterLink
    tls: ContextTls | None


@contextmanager
def place_to_listen(settings: WorkerSettings) -> Iterator[str | Path]:
    """Where the server listens; with `--reverse` in a directory of this process's alone."""
    if not settings.reverse:
        yield settings.bind
        return
    with tempfile.TemporaryDirectory(prefix="kakeya-worker-") as directory:
        yield Path(directory) / "server"


def way_to_routers(settings: WorkerSettings) -> Way:
    """Made before the model is loaded, which takes minutes. Raises StartError: TLS files or token cannot be used."""
    authorities, cert, key = settings.router_ca, settings.tls_cert, settings.tls_key
    try:
        link = RouterLink(client_tls(authorities, cert, key), JoinToken(settings.token, settings.token_file))
        link.token.metadata()
        tls = ContextTls.of_client(authorities, cert, key) if settings.reverse and authorities is not None else None
    except (TlsError, TokenError) as error:
        raise StartError(str(error)) from error
    hosts = [HostPort.parse(address).host for address in parse_list(settings.join)]
    if link.token.given and link.tls is None and not all(map(is_loopback, hosts)):
        _log.warning("the join token goes to routers in plaintext (no --router-ca): every host on the way can read it")
    return Way(link, tls)


def own_identity(
    settings: WorkerSettings, bound: str, store: SnapshotStore | None, grammars: Grammars
) -> WorkerIdentity:
    """What it joins as.

    Args:
        bound: the address that its server listens on.
    """
    host, address = socket.gethostname(), ""
    worker_id = f"{host}-{settings.pool_name}"
    if not settings.reverse:
        reached = HostPort.parse(settings.advertise or bound)
        if reached.host in ("0.0.0.0", "::"):  # noqa: S104  # compared with, not bound to
            reached = HostPort(host, reached.port)
        address, worker_id = str(reached), f"{host}-{reached.port}"
    return WorkerIdentity(
        worker_id=settings.worker_id or worker_id,
        pool=settings.pool_name,
        model=settings.model_name,
        address=address,
        num_threads=settings.threads,
        snapshot_store=store.identity if store else "",
        snapshot_free_bytes=getattr(store, "free_bytes", 0),  # a plugin of before does not say
        grammar_library=grammars.library,
    )
