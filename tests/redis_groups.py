"""Real, throw-away groups of Redis servers for tests: replicas behind Sentinel, and a Cluster."""

import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from tests.ports import free_port
from tests.redis_server import LocalRedis, executable_of_redis

NAME = "kakeya"
# A Sentinel that was held up for two seconds, as on a busy machine, does nothing for thirty.
_WAIT_SECONDS = 150.0
# Then a replica whose primary died meanwhile is none for it, for ever: it takes none that had lost the primary more
# than ten times DOWN_MS before it noticed.
_TILT_SECONDS = 40.0
_PATIENT_DOWN_MS = 10_000
DOWN_MS = 500
"""A server that is silent for so long is down, for Sentinel and for nodes of a Cluster (which want twice as much)."""


@dataclass
class SentinelGroup:
    """A primary and its replicas, and the Sentinels that choose who is which.

    A `RedisServer`, too: what is done to that is done to the primary, and started anew it is a replica.

    Attributes:
        sentinel_url: for a router.
        servers: in the order of their ports; any of them may be the primary.
    """

    sentinel_url: str
    servers: list[LocalRedis]
    sentinels: list[LocalRedis]

    @property
    def url(self) -> str:
        """Of the primary."""
        return self.primary.url

    def start(self) -> None:
        """Waits for a failover, if the primary was stopped, and for its replica."""
        if not self.primary.is_running:
            self.wait_for_another(self.primary)
        self.heal()

    def stop(self) -> None:
        self.primary.stop()

    def kill(self) -> None:
        self.primary.kill()

    def pause(self) -> None:
        self.primary.pause()

    def resume(self) -> None:
        self.primary.resume()

    @property
    def primary(self) -> LocalRedis:
        """Whom most of the Sentinels name."""
        named = [_primary_of(sentinel) for sentinel in self.sentinels]
        port = max(named, key=named.count)
        return next(server for server in self.servers if server.port == port)

    @property
    def epoch(self) -> int:
        """Of the latest failover, which Sentinel may have made by itself: it rises with each."""
        return max(map(_epoch_of, self.sentinels))

    @property
    def replicas(self) -> list[LocalRedis]:
        primary = self.primary
        return [server for server in self.servers if server is not primary]

    def wait_for_replicas(self) -> None:
        """Until the primary has all others as replicas that follow it, and takes writes."""
        wait_until(lambda: self._num_online() == len(self.servers) - 1)
        wait_until(lambda: asked(self.primary, "DEL", "nothing") == 0)

    def wait_for_another(self, than: LocalRedis) -> LocalRedis:
        """The primary, once all Sentinels name another one than this, and it takes writes."""
        patient_at, is_patient = time.monotonic() + _TILT_SECONDS, False

        def is_named() -> bool:
            nonlocal is_patient
            if not is_patient and time.monotonic() > patient_at:
                self.set_down_after(_PATIENT_DOWN_MS)
                is_patient = True
            return all(_primary_of(sentinel) != than.port for sentinel in self.sentinels)

        wait_until(is_named)
        if is_patient:
            self.set_down_after(DOWN_MS)
        wait_until(lambda: asked(self.primary, "ROLE")[0] == b"master")
        return self.primary

    def set_down_after(self, milliseconds: int) -> None:
        """Without an answer for so long a primary counts as down."""
        for sentinel in self.sentinels:
            asked(sentinel, "SENTINEL", "SET", NAME, "down-after-milliseconds", str(milliseconds))

    def heal(self) -> None:
        """Has all of them run again, and follow the primary."""
        for sentinel in self.sentinels:
            sentinel.resume()
        for replica in self.replicas:
            self.rejoin(replica)
        self.wait_for_replicas()

    def rejoin(self, server: LocalRedis) -> None:
        """Has one run again, as a replica; Sentinel itself would wait for some ten seconds with that."""
        if server.is_running:
            server.resume()
        else:
            server.start()
        asked(server, "REPLICAOF", "127.0.0.1", str(self.primary.port))

    def _num_online(self) -> int:
        role = asked(self.primary, "ROLE")
        return len(role[2]) if role[0] == b"master" and all(int(each[2]) > 0 for each in role[2]) else 0


@contextmanager
def sentinel_group(num_replicas: int = 1, *flags: str) -> Iterator[SentinelGroup]:
    """A started group with no data.

    Args:
        flags: of each server.
    """
    with ExitStack() as stack:
        servers = [_server(stack, *flags) for _ in range(num_replicas + 1)]
        for replica in servers[1:]:
            asked(replica, "REPLICAOF", "127.0.0.1", str(servers[0].port))
        wait_until(lambda: len(asked(servers[0], "ROLE")[2]) == num_replicas)
        sentinels = [_sentinel(stack, servers[0].port) for _ in range(3)]
        wait_until(lambda: all(_knows_all(sentinel, num_replicas) for sentinel in sentinels))
        places = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in sentinels)
        group = SentinelGroup(f"redis+sentinel://{places}/{NAME}/0", servers, sentinels)
        group.wait_for_replicas()
        yield group


@dataclass
class Cluster:
    """Primaries, and behind them as many replicas.

    Attributes:
        url: for a router.
    """

    url: str
    servers: list[LocalRedis]

    def owner(self, key: str) -> LocalRedis:
        """The primary that has the slot of a key."""
        return next(server for server in self.servers if server.is_running and any(self._owns(server, key)))

    def wait_for_another(self, key: str, than: LocalRedis) -> None:
        """Until a key's slot has another primary, which is not running any more."""
        wait_until(
            lambda: any(server.is_running and any(self._owns(server, key)) for server in {*self.servers} - {than})
        )

    def wait_for_replica(self, server: LocalRedis) -> None:
        """Until one that was started again follows the primary that has its slots now."""
        wait_until(lambda: asked(server, "INFO", "replication").get("master_link_status") == "up")

    def _owns(self, server: LocalRedis, key: str) -> Iterator[bool]:
        slot = asked(server, "CLUSTER", "KEYSLOT", key)
        for line in asked(server, "CLUSTER NODES").values():
            if "myself" in line["flags"]:
                yield any(int(each[0]) <= slot <= int(each[-1]) for each in line["slots"])


@contextmanager
def redis_cluster(num_replicas: int = 0) -> Iterator[Cluster]:
    """A started Cluster of three primaries with no data.

    Args:
        num_replicas: of each primary.
    """
    flags = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(2 * DOWN_MS)]
    flags += ["--cluster-require-full-coverage", "no"]  # as docs/redis.md says
    flags += ["--cluster-replica-validity-factor", "0"]  # on a busy machine, too, the replica is to take over
    with ExitStack() as stack:
        servers = [_server(stack, *flags) for _ in range(3 * (1 + num_replicas))]
        places = [f"127.0.0.1:{server.port}" for server in servers]
        command = [executable_of_redis("cli"), "--cluster", "create", *places]
        made = subprocess.run(
            [*command, "--cluster-replicas", str(num_replicas), "--cluster-yes"], capture_output=True, timeout=120
        )
        assert made.returncode == 0, made.stdout
        wait_until(lambda: all(b"cluster_state:ok" in _raw_info(server) for server in servers))
        yield Cluster(f"redis+cluster://{','.join(places[:2])}", servers)


def asked(server: LocalRedis, *command: str) -> Any:
    """What one server answers."""
    with redis.Redis(port=server.port, protocol=2) as client:
        return client.execute_command(*command)


def wait_until(holds: Callable[[], bool]) -> None:
    """Also of servers that do not answer yet."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            if holds():
                return
        except redis.exceptions.RedisError:
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline, "it never holds"
        time.sleep(0.02)


def _server(stack: ExitStack, *flags: str) -> LocalRedis:
    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="kakeya-test-redis-"))
    server = LocalRedis(executable_of_redis("server"), Path(directory), *_FAST, *flags, port=_cluster_port())
    stack.callback(server.stop)
    server.start()
    return server


_FAST: Sequence[str] = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")


def _sentinel(stack: ExitStack, primary_port: int) -> LocalRedis:
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kakeya-test-sentinel-")))
    port = free_port()
    (directory / "sentinel.conf").write_text(
        f"port {port}\nbind 127.0.0.1\ndir {directory}\n"
        f"sentinel monitor {NAME} 127.0.0.1 {primary_port} 2\n"
        f"sentinel down-after-milliseconds {NAME} {DOWN_MS}\n"
        f"sentinel failover-timeout {NAME} 1000\n"
    )
    sentinel = LocalRedis.of_command(
        [executable_of_redis("server"), str(directory / "sentinel.conf"), "--sentinel"], port
    )
    stack.callback(sentinel.stop)
    sentinel.start()
    return sentinel


def _primary_of(sentinel: LocalRedis) -> int:
    return int(asked(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)[1])


def _epoch_of(sentinel: LocalRedis) -> int:
    fields = iter(asked(sentinel, "SENTINEL", "MASTER", NAME))
    return int(dict(zip(fields, fields, strict=True))[b"config-epoch"])


def _knows_all(sentinel: LocalRedis, num_replicas: int) -> bool:
    with redis.Redis(port=sentinel.port, protocol=2, decode_responses=True) as client:
        state = client.sentinel_master(NAME)
    return bool(state["num-other-sentinels"] == 2 and state["num-slaves"] == num_replicas)


def _raw_info(server: LocalRedis) -> bytes:
    with redis.Redis(port=server.port, protocol=2) as client:
        client.response_callbacks.clear()
        found: bytes = client.execute_command("CLUSTER INFO")
    return found


def _cluster_port() -> int:
    """Nodes of a Cluster speak to each other at a port 10,000 above."""
    while True:
        port = free_port()
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port + 10_000))
            return port
