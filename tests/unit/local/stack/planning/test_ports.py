"""Ports of a stack: whose they are while a process does not listen there."""

import socket
import sys
from collections.abc import Iterator

import pytest

from kakeya_local.errors import StackError
from kakeya_local.stack.planning import ports as of_ports
from kakeya_local.stack.planning.ports import Ports, reachable
from kakeya_shared.settings.addresses import HostPort

ANY = HostPort("127.0.0.1", 0)


@pytest.fixture
def ports() -> Iterator[Ports]:
    with Ports() as made:
        yield made


def test_what_cannot_be_listened_on_is_refused(ports: Ports) -> None:
    free = ports.claim(ANY)
    assert free.port
    assert ports.claim(free) == free, "nobody listens there yet"
    with socket.create_server(free), pytest.raises(StackError, match=f"cannot listen on {free}: address already"):
        ports.claim(free)
    with pytest.raises(StackError, match=r"cannot listen on 203\.0\.113\.1:5: cannot assign"):
        ports.claim(HostPort("203.0.113.1", 5))
    with pytest.raises(StackError, match=r"cannot listen on no\.such\.host\.invalid:5: "):
        ports.claim(HostPort("no.such.host.invalid", 5))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a port be held for another process")
def test_a_port_is_given_to_nobody_who_did_not_ask_for_it(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    held = ports.claim(ANY)
    with pytest.raises(OSError, match="in use"), socket.socket() as stranger:
        stranger.bind(held)
    for _ in range(2):  # a process listens there, ends, and is started again
        with socket.create_server(held):
            pass
    monkeypatch.setattr(of_ports, "_CAN_HOLD", False)
    only_seen = ports.claim(ANY)
    with socket.socket() as stranger:
        stranger.bind(only_seen)


def test_left_it_holds_none() -> None:
    with Ports() as ports:
        held = ports.claim(ANY)
    with socket.socket() as stranger:
        stranger.bind(held)


@pytest.mark.parametrize(("bound", "found"), [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.0.0.7", "10.0.0.7")])
def test_where_clients_of_this_machine_go(bound: str, found: str) -> None:
    assert reachable(HostPort(bound, 5)) == HostPort(found, 5)
