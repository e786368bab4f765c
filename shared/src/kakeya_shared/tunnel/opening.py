"""The first line of a connection to a router's tunnel port.

    KAKEYA-TUNNEL/1 dial ROUTER DIAL                      of a worker, which was asked for this connection
    KAKEYA-TUNNEL/1 through ROUTER INCARNATION SECRET     of another router, which wants one to a worker

The second is answered by a line, `OK` or the reason. All bytes after that are those of the worker and its caller.
"""

import re
from dataclasses import dataclass
from typing import Literal

OK = "ok"

_LINE = re.compile(
    r"KAKEYA-TUNNEL/1 (?P<kind>dial|through) (?P<router>[!-~]{1,300}) (?P<wanted>[0-9a-f]{1,64})"
    r"(?: (?P<secret>[!-~]{1,100}))?"
)


@dataclass(frozen=True, slots=True)
class Opening:
    """What such a line says.

    Attributes:
        router: the name of the router that is meant; another one passes the connection on.
        wanted: which dial this is, or the incarnation of the worker that is wanted; in hexadecimal.
        secret: of the routers, which "through" asks for.
    """

    kind: Literal["dial", "through"]
    router: str
    wanted: str
    secret: str = ""

    @classmethod
    def parse(cls, line: str) -> "Opening":
        """Raises ValueError: it is no such line."""
        match = _LINE.fullmatch(line)
        if match is None or (match["kind"] == "through") != (match["secret"] is not None):
            raise ValueError("this is not the first line of a tunnel's connection")
        kind: Literal["dial", "through"] = "dial" if match["kind"] == "dial" else "through"
        return cls(kind, match["router"], match["wanted"], match["secret"] or "")

    def line(self) -> bytes:
        """With its end."""
        parts = ("KAKEYA-TUNNEL/1", self.kind, self.router, self.wanted, self.secret)
        return " ".join(filter(None, parts)).encode() + b"\n"
