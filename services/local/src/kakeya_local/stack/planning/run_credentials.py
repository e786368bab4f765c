"""The secrets of one run of a stack that asks for keys."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

ADMIN_KEY_VARIABLE = "KAKEYA_ROUTER_ADMIN_KEY"
_ID_BYTES = 6
_SECRET_BYTES = 32


@dataclass(frozen=True)
class RunCredentials:
    """What an operator and the stack's workers show the router.

    They go to the processes by environment: a command line is seen by everybody on the host, a file may be left behind.

    Attributes:
        admin_key: good for everything.
        join_token: admits any worker.
        is_new: whether the admin key was made for this run, so that nobody knows it yet.
    """

    admin_key: str = field(repr=False)
    join_token: str = field(repr=False)
    is_new: bool

    @classmethod
    def take(cls, environment: Mapping[str, str]) -> Self:
        """Those of the environment; what it lacks is made."""
        given = environment.get(ADMIN_KEY_VARIABLE)
        token = environment.get("KAKEYA_ROUTER_JOIN_TOKEN")
        return cls(given or _new_secret("key"), token or _new_secret("join"), is_new=not given)

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the router and the workers. A worker's own token file, of some other router, is overruled."""
        return {
            ADMIN_KEY_VARIABLE: self.admin_key,
            "KAKEYA_ROUTER_JOIN_TOKEN": self.join_token,
            "KAKEYA_WORKER_TOKEN": self.join_token,
            "KAKEYA_WORKER_TOKEN_FILE": "",
        }


def _new_secret(kind: str) -> str:
    return f"kakeya_{kind}_{secrets.token_hex(_ID_BYTES)}_{secrets.token_urlsafe(_SECRET_BYTES)}"
