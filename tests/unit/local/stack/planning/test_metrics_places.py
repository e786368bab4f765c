"""Where the processes of a stack show their metrics."""

import socket
from collections.abc import Mapping, Sequence

import pytest

from kakeya_local.errors import StackError
from kakeya_local.stack.planning import metrics_places as places_of_metrics
from kakeya_local.stack.planning.ports import Ports
from kakeya_shared.settings.addresses import HostPort

WORKERS = ("worker-1", "worker-2")


def metrics_places(router: str, workers: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    with Ports() as ports:
        return places_of_metrics.metrics_places(router, workers, environment, ports)


def test_each_process_has_a_port_of_its_own_on_loopback() -> None:
    places = metrics_places("router", WORKERS, {})
    assert places.keys() == {"router", *WORKERS}
    addresses = [HostPort.parse(place) for place in places.values()]
    assert {address.host for address in addresses} == {"127.0.0.1"}
    assert len({address.port for address in addresses} - {0}) == 3


def test_variables_have_the_last_word() -> None:
    off = {"KAKEYA_ROUTER_METRICS_BIND": "none", "KAKEYA_WORKER_METRICS_BIND": "localhost:0"}
    places = metrics_places("router", WORKERS, off)
    assert places.keys() == {*WORKERS}
    assert all(HostPort.parse(place).host == "localhost" for place in places.values())
    assert metrics_places("router", WORKERS, off | {"KAKEYA_WORKER_METRICS_BIND": "none"}) == {}
    assert metrics_places("router", WORKERS, {"KAKEYA_ROUTER_METRICS_BIND": ""}).keys() == {"router", *WORKERS}


@pytest.mark.parametrize("told", ["anywhere", "127.0.0.1:http"])
def test_what_is_no_address_is_refused_by_the_name_of_its_variable(told: str) -> None:
    with pytest.raises(StackError, match=r"^KAKEYA_ROUTER_METRICS_BIND: .* is not HOST:PORT$"):
        metrics_places("router", WORKERS, {"KAKEYA_ROUTER_METRICS_BIND": told})


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(StackError, match=rf"^KAKEYA_WORKER_METRICS_BIND: cannot listen on {taken}"):
            metrics_places("router", WORKERS, {"KAKEYA_WORKER_METRICS_BIND": taken})


def test_one_port_is_not_enough_for_two_workers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = f"127.0.0.1:{server.getsockname()[1]}"
    told = {"KAKEYA_WORKER_METRICS_BIND": free}
    with pytest.raises(StackError, match=f"names one port, {free}, for several processes"):
        metrics_places("router", WORKERS, told)
    assert metrics_places("router", WORKERS[:1], told)["worker-1"] == free
