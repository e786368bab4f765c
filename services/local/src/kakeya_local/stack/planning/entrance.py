"""How a stack itself, and clients on this machine, reach its router."""

from collections.abc import Mapping

import grpc

from kakeya import tls_credentials
from kakeya.cli.flags.connection import Connection
from kakeya_local.errors import StackError
from kakeya_local.stack.planning.run_credentials import ADMIN_KEY_VARIABLE
from kakeya_shared.settings.addresses import HostPort

_CERT = "KAKEYA_ROUTER_TLS_CERT"
_CA = "KAKEYA_TLS_CA"
_WORKER_CA = "KAKEYA_WORKER_ROUTER_CA"


def entrance(router: HostPort, admin_key: str, environment: Mapping[str, str]) -> Connection:
    """With TLS where the environment makes the router serve it.

    Raises:
        StackError: the router would serve TLS and nothing says whom to trust, or the key or a file is of no use.
    """
    connection = Connection(str(router), admin_key, _credentials(environment))
    try:
        _ = connection.metadata
    except ValueError as error:
        raise StackError(f"{ADMIN_KEY_VARIABLE} {str(error).partition(': ')[2]}") from error
    return connection


def _credentials(environment: Mapping[str, str]) -> grpc.ChannelCredentials | None:
    if not environment.get(_CERT):
        return None
    if not environment.get(_CA):
        raise StackError(f"{_CERT} is set, so {_CA} must name the authorities that its certificate comes from")
    files = {name: environment.get(f"KAKEYA_TLS_{name.upper()}") or None for name in ("ca", "cert", "key")}
    try:
        return tls_credentials(**files)
    except OSError as error:
        raise StackError(f"KAKEYA_TLS_*: {error.filename}: {error.strerror}") from error
    except ValueError as error:
        raise StackError(f"KAKEYA_TLS_*: {error}") from error


def tls_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What the workers and the HTTP shim need beside the environment to find the router behind its certificate.

    The shim is a client: it shows the router what clients on this machine show.
    """
    if not environment.get(_CERT):
        return {}
    found = {_WORKER_CA: environment[_CA]}
    found |= {f"KAKEYA_HTTP_ROUTER_{name}": environment.get(f"KAKEYA_TLS_{name}", "") for name in ("CA", "CERT", "KEY")}
    return {name: value for name, value in found.items() if value and not environment.get(name)}
