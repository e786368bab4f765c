"""What a person can do about an error."""

import grpc

from kakeya.cli.connection import Connection
from kakeya.errors import ConnectionFailed, CredentialNotFound, KakeyaError, PermissionDenied, Unauthenticated


def explain(error: KakeyaError, connection: Connection) -> str:
    """The error in one line, with its cure where there is one."""
    if isinstance(error, ConnectionFailed):
        said = f"no runtime answers at {connection.address} ({' '.join(str(error).split())})"
    else:
        said = " ".join(str(error).split())
    cure = _cure(error, connection)
    return f"{said}; {cure}" if cure else said


def _cure(error: KakeyaError, connection: Connection) -> str:
    if isinstance(error, ConnectionFailed):
        if connection.credentials:
            return "does it serve TLS, with a certificate of these authorities for this name?"
        return "`kakeya up` starts one on this machine; one that serves TLS needs --tls-ca"
    if isinstance(error, Unauthenticated) and connection.api_key:
        return "`kakeya keys create` makes another"
    if isinstance(error, Unauthenticated):
        return "set KAKEYA_API_KEY or pass --api-key-file"
    if isinstance(error, PermissionDenied):
        return "`kakeya keys create --scope` makes a key that may"
    if isinstance(error, CredentialNotFound):
        return "`kakeya keys list` and `kakeya tokens list` show the ids"
    if error.status is grpc.StatusCode.UNIMPLEMENTED:
        return f"the router at {connection.address} is older than this command"
    return ""
