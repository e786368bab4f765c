"""Which node of a Redis Cluster has which slot, as its nodes say."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from redis import exceptions
from redis.crc import key_slot

from kakeya_router.store.servers.one_server import asking, told
from kakeya_router.store.servers.server import Command, Server
from kakeya_shared.settings.redis_url import RedisUrl

# Of a script its keys come behind their number; of a plain command the first is its first argument.
_SCRIPTS = ("EVALSHA", "EVAL")
# Who has not said what it knows then, is not waited for.
_ASK_SECONDS = 1.0


def slot_of(command: Command) -> int | None:
    """Of its first key: all keys of a command are in one slot; None: it has none."""
    at = 3 if command[0] in _SCRIPTS else 1
    key = command[at] if len(command) > at else None
    return key_slot(key.encode()) if isinstance(key, str) and key.startswith("kakeya:") else None


@dataclass(frozen=True, slots=True)
class SlotMap:
    """Attributes:
    owners: URL of the primary by slot; those that nobody serves are missing.
    servers: all nodes by URL; the generation of a primary is its configuration epoch. A node that takes a slot over
        has a greater one than the node before.
    """

    owners: Mapping[int, str]
    servers: Mapping[str, Server]

    @property
    def primaries(self) -> list[str]:
        """Those with slots, in some order."""
        return sorted(set(self.owners.values()))


@dataclass(eq=False)
class Slots:
    """Asks all nodes that it knows of: one that was cut off knows of no failover since."""

    _url: RedisUrl
    _timeout_seconds: float
    _known: frozenset[str] = field(default=frozenset(), init=False)

    async def read(self) -> SlotMap:
        """What they say, of each slot the owner with the greatest configuration epoch.

        Raises:
            ConnectionError: none of them answers in time.
        """
        urls = {self._url.server(host, port) for host, port in self._url.places} | self._known
        answers = [asyncio.ensure_future(self._said_by(url)) for url in urls]
        try:
            answered, _ = await asyncio.wait(answers, timeout=min(_ASK_SECONDS, self._timeout_seconds / 2))
            if not any(each.exception() is None for each in answered):
                answered, _ = await asyncio.wait(answers, timeout=self._timeout_seconds / 2)
        finally:
            for each in answers:
                each.cancel()
            await asyncio.gather(*answers, return_exceptions=True)
        views = [each.result() for each in answered if each.exception() is None]
        if not views:
            raise exceptions.ConnectionError("no node of the Cluster says where the slots are")
        found = _merged(views)
        self._known = frozenset(found.servers)
        return found

    def url_of(self, host: str, port: int) -> str:
        """Of one of its nodes."""
        return self._url.server(host, port)

    async def _said_by(self, url: str) -> Mapping[str, tuple[int, list[range]]]:
        """Of each node its configuration epoch and slots. Raises what redis-py raises."""
        async with asking(url, self._timeout_seconds) as node:
            lines: str = await told(node, "CLUSTER", "NODES")
        found = {}
        for line in lines.splitlines():
            _, address, flags, _, _, _, epoch, _, *ranges = line.split(" ")
            host, _, port = address.partition("@")[0].rpartition(":")
            if port != "0" and not {"noaddr", "handshake"} & {*flags.split(",")}:
                its_url = self._url.server(host, int(port)) if host else url  # it does not know its own yet
                found[its_url] = int(epoch), [_slots(each) for each in ranges if not each.startswith("[")]  # of a move
        return found


def _slots(text: str) -> range:
    """As in "0-5460", or "7"."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _merged(views: Iterable[Mapping[str, tuple[int, Collection[range]]]]) -> SlotMap:
    epochs: dict[int, int] = {}
    owners: dict[int, str] = {}
    servers: dict[str, Server] = {}
    for view in views:
        for url, (epoch, slots) in view.items():
            if url not in servers or servers[url].generation < epoch:
                servers[url] = Server(url, epoch)
            for slot in (slot for some in slots for slot in some):
                if epochs.get(slot, -1) < epoch:
                    epochs[slot], owners[slot] = epoch, url
    return SlotMap(owners, servers)
