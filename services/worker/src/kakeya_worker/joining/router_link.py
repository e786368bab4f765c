"""How this worker reaches routers, and what it shows them: TLS, and its join token."""

import re
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from pydantic import SecretStr

from kakeya_shared.rpc.tls import ClientTls, open_channel

Metadata = tuple[tuple[str, str], ...]


class TokenError(Exception):
    """There is no usable token where one should be; the message never shows it."""


class JoinToken:
    """A secret of the configuration, or a file that is read at each call, so that it can be replaced at any time."""

    def __init__(self, secret: SecretStr | None = None, file: Path | None = None) -> None:
        self._secret = secret
        self._file = file

    @property
    def given(self) -> bool:
        return self._secret is not None or self._file is not None

    def metadata(self) -> Metadata:
        """What goes with each call; empty without a token. Raises TokenError."""
        if self._file is not None:
            return _bearer(_content(self._file), str(self._file))
        if self._secret is not None:
            return _bearer(self._secret.get_secret_value(), "--token")
        return ()


@dataclass(frozen=True)
class RouterLink:
    """The way to any router; `tls` None for plaintext."""

    tls: ClientTls | None = None
    token: JoinToken = field(default_factory=JoinToken)

    def open(self, address: str) -> grpc.aio.Channel:
        """A channel with the TLS files as they are now."""
        return open_channel(address, None if self.tls is None else self.tls.credentials())


def _content(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace")
    except OSError as error:
        raise TokenError(f"{file}: {error.strerror}") from error


def _bearer(text: str, place: str) -> Metadata:
    token = text.strip()
    if not re.fullmatch("[!-~]+", token):  # gRPC would refuse to send it, and show it in doing so
        raise TokenError(f"{place} holds no join token: one line of visible ASCII characters")
    return (("authorization", f"Bearer {token}"),)
