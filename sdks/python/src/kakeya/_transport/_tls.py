"""TLS by files in PEM, as the services' flags name them."""

import os
import ssl
from pathlib import Path

import grpc

StrPath = str | os.PathLike[str]


def tls_credentials(
    *, ca: StrPath | None = None, cert: StrPath | None = None, key: StrPath | None = None
) -> grpc.ChannelCredentials:
    """Credentials of a TLS channel, for `Client(credentials=...)`. The files are read once, now.

    Args:
        ca: certificate authorities that the runtime's certificate must come from; None takes gRPC's own, the
            public ones.
        cert: certificate chain to present where the runtime asks for one (mTLS).
        key: private key of `cert`, not encrypted.

    Raises:
        OSError: a file cannot be read.
        ValueError: `cert` without `key` or the other way round, or what a file holds is of no use; names the file.
    """
    if (cert is None) != (key is None):
        raise ValueError("cert and key go together")
    # Read first: a file that is missing is named then, which OpenSSL does not do.
    credentials = grpc.ssl_channel_credentials(_bytes(ca), _bytes(key), _bytes(cert))
    # gRPC takes any bytes, and says nothing before the first handshake fails; OpenSSL says at once what is wrong.
    if ca is not None:
        _check_authorities(ca)
    if cert is not None and key is not None:
        _check_pair(cert, key)
    return credentials


def _bytes(path: StrPath | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()


def _check_authorities(ca: StrPath) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=ca)
    except ssl.SSLError as error:
        raise ValueError(f"{os.fspath(ca)}: holds no certificates in PEM") from error


def _check_pair(cert: StrPath, key: StrPath) -> None:
    try:
        # The password keeps OpenSSL from asking for one at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(cert, key, password="")
    except ssl.SSLError as error:
        names = f"{os.fspath(cert)} and {os.fspath(key)}"
        raise ValueError(f"{names}: no certificate chain and its private key in PEM") from error
