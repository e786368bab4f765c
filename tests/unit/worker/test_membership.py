"""How a worker takes part: where it listens, and who it says that it is."""

import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kakeya_worker.grammars.grammars import Grammars
from kakeya_worker.membership import own_identity, place_to_listen
from kakeya_worker.settings import WorkerSettings

GRAMMARS = cast(Grammars, SimpleNamespace(library="grammar-library-1"))


def _settings(**given: Any) -> WorkerSettings:
    return WorkerSettings(model="kakeya-nano", join="127.0.0.1:50051", **given)


def test_it_is_found_at_what_it_listens_on() -> None:
    settings = _settings(bind="127.0.0.1:7000")
    with place_to_listen(settings) as place:
        assert place == "127.0.0.1:7000"
    identity = own_identity(settings, "127.0.0.1:7000", None, GRAMMARS)
    assert (identity.address, identity.worker_id) == ("127.0.0.1:7000", f"{socket.gethostname()}-7000")


def test_with_tunnels_it_has_no_address_and_a_socket_of_its_own() -> None:
    settings = _settings(reverse=True)
    with place_to_listen(settings) as place:
        assert not isinstance(place, str)
        assert place.parent.stat().st_mode & 0o077 == 0, "nobody else on this host comes in"
    assert not place.parent.exists()
    identity = own_identity(settings, f"unix:{place}", None, GRAMMARS)
    assert (identity.address, identity.worker_id) == ("", f"{socket.gethostname()}-kakeya-nano")


def test_on_every_interface_it_is_found_under_the_name_of_its_host() -> None:
    settings = _settings(bind="0.0.0.0:7000", insecure=True)
    identity = own_identity(settings, "0.0.0.0:7000", None, GRAMMARS)
    assert identity.address == f"{socket.gethostname()}:7000"


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"join": ""}, "--reverse needs --join"),
        ({"bind": "127.0.0.1:7000"}, "leave out --bind"),
        ({"bind": "127.0.0.1:7000", "advertise": "here:1"}, "leave out --bind and --advertise"),
        ({"join": "router.example.org:50051"}, "needs --router-ca, and --token"),
        ({"join": "router.example.org:50051", "router_ca": "ca.pem"}, "needs --router-ca, and --token"),
    ],
)
def test_what_does_not_go_with_tunnels(given: dict[str, Any], error: str) -> None:
    told: dict[str, Any] = {"model": "kakeya-nano", "join": "127.0.0.1:50051", "reverse": True, **given}
    with pytest.raises(ValueError, match=error):
        WorkerSettings(**told)


def test_beyond_loopback_it_shows_a_token_over_tls() -> None:
    told: dict[str, Any] = {"join": "router.example.org:50051", "router_ca": "ca.pem", "token_file": "join.token"}
    assert WorkerSettings(model="kakeya-nano", reverse=True, **told).reverse
