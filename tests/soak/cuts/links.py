"""Links of network namespaces, which are taken down, or swallow what is sent."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

NETWORK = "10.213.77"
HOST = f"{NETWORK}.1"
"""Where those outside the namespaces are reached from inside."""

Kind = Literal["down", "blackhole"]


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def are_possible() -> bool:
    """Whether this process may make namespaces."""
    name = "kakeya-probe"
    try:
        _ip("netns", "add", name)
        _ip("netns", "delete", name)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


@dataclass(frozen=True)
class Link:
    """Of one namespace to the host.

    Attributes:
        python: starts Python inside.
    """

    name: str
    python: Path

    def cut(self, kind: Kind) -> None:
        """Nothing goes through from now on, and nobody is told."""
        if kind == "down":
            _ip("link", "set", f"{self.name}-h", "down")
        else:
            _ip("-n", self.name, "route", "add", "blackhole", f"{HOST}/32")

    def mend(self, kind: Kind) -> None:
        if kind == "down":
            _ip("link", "set", f"{self.name}-h", "up")
        else:
            _ip("-n", self.name, "route", "delete", "blackhole", f"{HOST}/32")


@contextmanager
def links(number: int, directory: Path) -> Iterator[list[Link]]:
    """So many namespaces on one bridge, which are gone at the end; those of a run that was killed go first."""
    bridge = "kakeya-br"
    for kept in (("link", bridge), *(("netns", f"kakeya-{at}") for at in range(number))):
        with suppress(subprocess.CalledProcessError):
            _ip(kept[0], "delete", kept[1])
    with ExitStack() as stack:
        _ip("link", "add", bridge, "type", "bridge")
        stack.callback(_ip, "link", "delete", bridge)
        _ip("address", "add", f"{HOST}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        made = []
        for at in range(number):
            name = f"kakeya-{at}"
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "delete", name)
            _ip("link", "add", f"{name}-h", "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", f"{name}-h", "master", bridge, "up")
            for words in (("address", "add", f"{NETWORK}.{10 + at}/24", "dev", "eth0"), ("link", "set", "eth0", "up")):
                _ip("-n", name, *words)
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "route", "add", "default", "via", HOST)
            python = directory / f"python-in-{name}"
            python.write_text(f'#!/bin/sh\nexec ip netns exec {name} {sys.executable} "$@"\n')
            python.chmod(0o755)
            made.append(Link(name, python))
        yield made
