"""TLS on both sides of a connection, from PEM files that are read again when they change.

To replace certificates, write the new files and do nothing else: connections made from then on use them,
those that stand go on. Between the writes of a certificate and of its key the two do not fit; until they do, the
last ones that did stay in use.
"""

import ssl
import threading
from dataclasses import dataclass
from pathlib import Path

import grpc
import structlog

from kakeya_shared.rpc import proxies

_log = structlog.get_logger()

_Signature = tuple[tuple[int, int, int], ...]
"""Of each file: time of change in ns, inode, size; zeros where it cannot be looked at."""


class TlsError(Exception):
    """The files cannot be used; the message is one line that names the file and the reason."""


@dataclass(frozen=True)
class Pem:
    """What the files hold; None where there is no such file."""

    cert: bytes | None
    key: bytes | None
    authorities: bytes | None


class PemFiles:
    """A certificate with its key, authorities, or both; safe to use from several threads.

    Args:
        cert: certificate chain, the server's or client's own first.
        key: its private key; given where `cert` is.
        authorities: certificates that the other side's must descend from.

    Raises:
        TlsError: a file cannot be read, is no PEM, or certificate and key do not fit.
    """

    def __init__(self, *, cert: Path | None, key: Path | None, authorities: Path | None) -> None:
        self._cert, self._key, self._authorities = cert, key, authorities
        self._lock = threading.Lock()
        self._refused: _Signature | None = None
        self._signature, self.pem = self._read()

    def refresh(self) -> bool:
        """Reads the files if they have changed; whether `pem` is new. What cannot be used is logged once and left."""
        with self._lock:
            signature = self._look()
            if signature in (self._signature, self._refused):
                return False
            try:
                self._signature, self.pem = self._read()
            except TlsError as error:
                self._refused = signature
                _log.warning("changed TLS files cannot be used; the old ones stay in use", error=str(error))
                return False
            self._refused = None
        _log.info("TLS files have changed; new connections use them", certificate=str(self._cert))
        return True

    def context(self, protocol: int) -> ssl.SSLContext:
        """For connections that are not gRPC's. Raises TlsError: the files change just now."""
        context = ssl.SSLContext(protocol)
        try:
            if self._cert is not None:
                context.load_cert_chain(self._cert, self._key, password="")
            if self.pem.authorities is not None:
                context.load_verify_locations(cadata=self.pem.authorities.decode("ascii", "ignore"))
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ValueError) as error:
            raise TlsError(f"{self._paths()[0]} cannot be used: {error}") from error
        return context

    def _paths(self) -> list[Path]:
        return [path for path in (self._cert, self._key, self._authorities) if path is not None]

    def _look(self) -> _Signature:
        return tuple(_file_signature(path) for path in self._paths())

    def _read(self) -> tuple[_Signature, Pem]:
        """Raises TlsError."""
        signature = self._look()
        pem = Pem(_content(self._cert), _content(self._key), _content(self._authorities))
        self._check(pem)
        if self._look() != signature:
            raise TlsError(f"{self._paths()[0]}: changed while it was read")
        return signature, pem

    def _check(self, pem: Pem) -> None:
        # gRPC would find out at the first handshake, and not live through it.
        if (self._cert is None) != (self._key is None):
            raise TlsError("a certificate and its key go together")
        if self._cert is not None and self._key is not None:
            _check_pair(self._cert, self._key)
        if self._authorities is not None and pem.authorities is not None:
            _check_authorities(self._authorities, pem.authorities)


class ServerTls:
    """TLS of a server; arguments and errors as `PemFiles`. With authorities, clients must show a certificate."""

    def __init__(self, cert: Path, key: Path, client_authorities: Path | None = None) -> None:
        self._files = PemFiles(cert=cert, key=key, authorities=client_authorities)
        self._asks_clients = client_authorities is not None

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.dynamic_ssl_server_credentials(self._configuration(), self.fetch, self._asks_clients)  # type: ignore[arg-type]  # None may be fetched

    def fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """Asked by gRPC before each handshake, in a thread of its own; None: nothing has changed."""
        return self._configuration() if self._files.refresh() else None

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        pem = self._files.pem
        return grpc.ssl_server_certificate_configuration([(pem.key, pem.cert)], pem.authorities)  # type: ignore[list-item]  # a server has both


class ClientTls:
    """TLS of a client. Arguments and errors as `PemFiles`; a certificate is for servers that ask for one."""

    def __init__(self, authorities: Path, cert: Path | None = None, key: Path | None = None) -> None:
        self._files = PemFiles(cert=cert, key=key, authorities=authorities)
        self._credentials = self._made()

    def credentials(self) -> grpc.ChannelCredentials:
        """Those of the files as they are now: the same object as long as they do not change."""
        if self._files.refresh():
            self._credentials = self._made()
        return self._credentials

    def _made(self) -> grpc.ChannelCredentials:
        pem = self._files.pem
        return grpc.ssl_channel_credentials(pem.authorities, pem.key, pem.cert)


class ContextTls:
    """TLS of connections that are not gRPC's, with the same files. Each object reads them for itself, since a change of
    files is told once.
    """

    def __init__(self, files: PemFiles, protocol: int) -> None:
        """Raises TlsError."""
        self._files, self._protocol = files, protocol
        self._context = files.context(protocol)

    @classmethod
    def of_server(cls, cert: Path, key: Path, client_authorities: Path | None) -> "ContextTls":
        """Arguments and errors as `ServerTls`."""
        return cls(PemFiles(cert=cert, key=key, authorities=client_authorities), ssl.PROTOCOL_TLS_SERVER)

    @classmethod
    def of_client(cls, authorities: Path, cert: Path | None, key: Path | None) -> "ContextTls":
        """Arguments and errors as `ClientTls`."""
        return cls(PemFiles(cert=cert, key=key, authorities=authorities), ssl.PROTOCOL_TLS_CLIENT)

    def context(self) -> ssl.SSLContext:
        """Of the files as they are now, or as they were when they could be used last."""
        if self._files.refresh():
            try:
                self._context = self._files.context(self._protocol)
            except TlsError as error:
                _log.warning("changed TLS files cannot be used; the old ones stay in use", error=str(error))
        return self._context


def client_tls(authorities: Path | None, cert: Path | None, key: Path | None) -> ClientTls | None:
    """As the flags have it: without authorities there is no TLS. Raises TlsError."""
    return None if authorities is None else ClientTls(authorities, cert, key)


def open_channel(
    address: str, credentials: grpc.ChannelCredentials | None, options: list[tuple[str, int]] | None = None
) -> grpc.aio.Channel:
    """A channel to HOST:PORT with these credentials, in plaintext without."""
    options = (options or []) + proxies.options(address)
    if variable := proxies.variable(address):
        _log.warning(f"this way goes through the proxy of ${variable}; no_proxy lists what does not", address=address)
    target = f"dns:///{address}"  # else gRPC would take a host of the name `unix` for a socket in the file system
    if credentials is None:
        return grpc.aio.insecure_channel(target, options=options)
    return grpc.aio.secure_channel(target, credentials, options=options)


def open_socket(path: Path, options: list[tuple[str, int]] | None = None) -> grpc.aio.Channel:
    """A channel to a socket of this host's file system, in plaintext."""
    return grpc.aio.insecure_channel(f"unix:{path}", options=options or [])


def _file_signature(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_ctime_ns, status.st_ino, status.st_size)  # of content, owner and mode, and of a rename over it


def _content(path: Path | None) -> bytes | None:
    try:
        return None if path is None else path.read_bytes()
    except OSError as error:
        raise TlsError(f"{path}: {error.strerror}") from error


def _check_pair(cert: Path, key: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Of a key with a password: an error instead of a question on the terminal.
        context.load_cert_chain(cert, key, password="")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or "not PEM, or the key has a password"
        raise TlsError(f"{cert} and {key} are no certificate with its key: {reason}") from error


def _check_authorities(path: Path, content: bytes) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # Between the certificates may stand anything, such as their names in UTF-8.
        context.load_verify_locations(cadata=content.decode("ascii", "ignore"))
    except (OSError, ValueError) as error:
        raise TlsError(f"{path}: no certificate authorities in PEM") from error
