"""The key that a client shows the runtime."""

import os
import re
from collections.abc import Mapping

from kakeya._spans._tracing import Metadata

VARIABLE = "KAKEYA_API_KEY"

# What fits an HTTP/2 header as it is. gRPC would refuse the rest as well, in an error that shows the key.
_SENDABLE = re.compile(r"[!-~]+")


class ApiKey:
    """A key that is kept out of sight: neither its repr nor an error shows it.

    Raises:
        ValueError: it has characters that no key has; the message says so without them.
    """

    __slots__ = ("_secret",)

    def __init__(self, secret: str, source: str = "api_key") -> None:
        if not _SENDABLE.fullmatch(secret):
            raise ValueError(f"{source}: has blanks, line ends or characters outside ASCII, which no key has")
        self._secret = secret

    def __repr__(self) -> str:
        return "ApiKey(...)"

    @property
    def metadata(self) -> Metadata:
        """What goes with each call."""
        return (("authorization", f"Bearer {self._secret}"),)


def metadata(key: ApiKey | None) -> Metadata:
    """What goes with each call; nothing where there is no key."""
    return () if key is None else key.metadata


def choose(api_key: str | None, environment: Mapping[str, str] = os.environ) -> ApiKey | None:
    """The key of a client; None for none.

    Args:
        api_key: None takes $KAKEYA_API_KEY, "" is no key even if that is set.

    Raises:
        ValueError: as `ApiKey`.
    """
    if api_key is not None:
        return ApiKey(api_key) if api_key else None
    secret = environment.get(VARIABLE)
    return ApiKey(secret, f"${VARIABLE}") if secret else None
