"""How this machine reaches the HTTP shim of a stack."""

import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from kakeya_local.errors import StackError
from kakeya_shared.settings.addresses import HostPort

_SERVES_TLS = "KAKEYA_HTTP_TLS_CERT"
_CALL_SECONDS = 5.0


@dataclass(frozen=True)
class HttpEntrance:
    """An address and, where the shim serves TLS, how to speak it.

    Attributes:
        address: where clients on this machine find the shim.
        tls: None for plaintext.
    """

    address: HostPort
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.address}"

    def connection(self, timeout_seconds: float) -> http.client.HTTPConnection:
        """Not connected yet."""
        host, port = self.address
        if self.tls:
            return http.client.HTTPSConnection(host, port, timeout=timeout_seconds, context=self.tls)
        return http.client.HTTPConnection(host, port, timeout=timeout_seconds)

    def unready(self, path: str = "/readyz") -> str:
        """Why what is asked for is not 200, or "" where it is."""
        connection = self.connection(_CALL_SECONDS)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return "" if response.status == http.client.OK else _reason(response.status, response.read())
        except (OSError, http.client.HTTPException):
            return "it does not answer"
        finally:
            connection.close()


def http_entrance(address: HostPort, environment: Mapping[str, str]) -> HttpEntrance:
    """With TLS where the environment makes the shim serve it. Raises StackError where a file of it is of no use."""
    return HttpEntrance(address, _context(environment) if environment.get(_SERVES_TLS) else None)


def _context(environment: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    # The certificate is for the names that clients know, perhaps not for this address. Nothing secret is told to the
    # shim by this process, which has started it itself.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    cert, key = (environment.get(f"KAKEYA_TLS_{name}") for name in ("CERT", "KEY"))
    try:
        if cert:
            context.load_cert_chain(cert, key)
    except OSError as error:  # ssl.SSLError is one
        raise StackError(f"KAKEYA_TLS_CERT: {cert}: {error.strerror or error}") from error
    return context


def _reason(status: int, body: bytes) -> str:
    return error_message(body) or f"it answers {status}"


def error_message(body: bytes) -> str:
    """What an answer or an event says went wrong, in one line; "" where it says nothing of the kind."""
    try:
        said = json.loads(body)
    except ValueError:
        return ""
    error = said.get("error") if isinstance(said, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return " ".join(message.split()) if isinstance(message, str) else ""
