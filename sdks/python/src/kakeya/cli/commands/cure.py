"""What a person can do about an error."""

import grpc

from kakeya._transport import _proxy
from kakeya.cli.flags.connection import Connection
from kakeya.errors import ConnectionFailed, CredentialNotFound, KakeyaError, PermissionDenied, Unauthenticated

BAD_KEY = "the key of KAKEYA_API_KEY or --api-key-file is none of this router's, expired or revoked"
NO_KEY = "set KAKEYA_API_KEY or pass --api-key-file"


def explain(error: KakeyaError, connection: Connection, *, scope: str = "sessions") -> str:
    """The error in one line, with its cure where there is one.

    Args:
        scope: what a key must be good for here.
    """
    if isinstance(error, ConnectionFailed):
        said = f"no runtime answers at {connection.address} ({' '.join(str(error).split())})"
    else:
        said = " ".join(str(error).split())
    cure = _cure(error, connection, scope)
    return f"{said}; {cure}" if cure else said


def unreachable(details: str, connection: Connection) -> str:
    """The cure where no connection comes about, by what gRPC says of it."""
    if proxy := _proxy.variable(connection.address):
        host = _proxy.host_of(connection.address)
        return f"the way there goes through the proxy of ${proxy}: no_proxy={host} goes past it"
    if "Connection refused" in details:
        return "nothing listens there; `kakeya up` starts one on this machine"
    if connection.credentials:
        return (
            "does it serve TLS, with a certificate of these authorities for this name, and does it ask for yours "
            "(--tls-cert, --tls-key)?"
        )
    return "check the address; one that serves TLS needs --tls-ca"


def _cure(error: KakeyaError, connection: Connection, scope: str) -> str:
    if isinstance(error, ConnectionFailed):
        return unreachable(str(error), connection)
    if isinstance(error, Unauthenticated):
        return BAD_KEY if connection.api_key else NO_KEY
    if isinstance(error, PermissionDenied):
        return (
            f"it takes a key with the scope {scope}, which an administrator makes: `kakeya keys create --scope {scope}`"
        )
    if isinstance(error, CredentialNotFound):
        return "`kakeya keys list` and `kakeya tokens list` show the ids"
    if error.status is grpc.StatusCode.UNIMPLEMENTED:
        return f"the router at {connection.address} is older than this command"
    return ""
