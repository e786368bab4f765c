"""TLS of the HTTP listener, from PEM files that are read again when they change."""

import ssl
from pathlib import Path

import structlog

from kakeya_http_shim.settings import HttpSettings
from kakeya_shared.process.service_process import StartError
from kakeya_shared.rpc.tls import PemFiles, TlsError

_log = structlog.get_logger()


class ServerTls:
    """Arguments and errors as `kakeya_shared.rpc.tls.ServerTls`: the same files, the same behaviour.

    Attributes:
        context: for the listener. Each handshake looks whether the files have changed and then uses the new ones;
            connections that stand go on.
    """

    def __init__(self, cert: Path, key: Path, client_authorities: Path | None = None) -> None:
        self._cert, self._key, self._authorities = cert, key, client_authorities
        self._files = PemFiles(cert=cert, key=key, authorities=client_authorities)
        self._current = self._made()
        self.context = self._made()
        self.context.sni_callback = self._choose

    def _choose(self, handshake: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Called by each handshake, whether or not the client names a server."""
        if self._files.refresh():
            try:
                self._current = self._made()
            except (OSError, ValueError) as error:  # changed again in this moment; the next handshake looks again
                _log.warning("changed TLS files cannot be used; the old ones stay in use", error=str(error))
        handshake.context = self._current

    def _made(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(self._cert, self._key)
        if self._authorities is not None:
            context.load_verify_locations(self._authorities)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def server_context(settings: HttpSettings) -> ssl.SSLContext | None:
    """As the flags have it; None: plaintext. Raises StartError where the files cannot be used."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    try:
        return ServerTls(settings.tls_cert, settings.tls_key, settings.tls_client_ca).context
    except TlsError as error:
        raise StartError(str(error)) from error
