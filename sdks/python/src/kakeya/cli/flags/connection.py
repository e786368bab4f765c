"""How a command reaches the runtime."""

from dataclasses import dataclass, field

import grpc

from kakeya._spans._tracing import Metadata
from kakeya._transport import _proxy
from kakeya._transport._api_key import ApiKey


@dataclass(frozen=True)
class Connection:
    """A router, and what to show it.

    Attributes:
        address: HOST:PORT.
        api_key: "" for none; never shown.
        credentials: of TLS; None for plaintext.
    """

    address: str
    api_key: str = field(default="", repr=False)
    credentials: grpc.ChannelCredentials | None = field(default=None, repr=False)

    @property
    def metadata(self) -> Metadata:
        """What goes with each call."""
        return ApiKey(self.api_key).metadata if self.api_key else ()

    @property
    def is_here(self) -> bool:
        """Whether the address is one of this host, by which no other host reaches it."""
        return _proxy.is_here(self.address)

    @property
    def shows_key(self) -> bool:
        """Whether a listener on the way to another host reads the key."""
        return bool(self.api_key) and self.credentials is None and not self.is_here
