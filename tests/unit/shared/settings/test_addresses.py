import pytest

from kakeya_shared.settings.addresses import HostPort, is_loopback, parse_list


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost:1", "localhost", 1),
        ("[::1]:0", "::1", 0),
        ("[fe80::1%eth0]:1", "fe80::1%eth0", 1),
        ("10.0.0.1:65535", "10.0.0.1", 65535),
        ("a_b.Router-1.svc.:1", "a_b.Router-1.svc.", 1),
    ],
)
def test_an_address_reads_as_it_is_written(text: str, host: str, port: int) -> None:
    assert HostPort.parse(text) == (host, port)
    assert str(HostPort.parse(text)) == text


@pytest.mark.parametrize("text", ["", "host", ":1", "host:", "host:x", "host:-1", "host:65536", "[]:1"])
def test_what_lacks_a_part_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        HostPort.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "unix:/run/socket:1",
        "unix:///run/socket:1",
        "dns:///host:1",
        "dns://10.0.0.1/host:1",
        "xds:///service:1",
        "ipv4:10.0.0.1:1,10.0.0.2:1",
        "10.0.0.1,10.0.0.2:1",
        "host host:1",
        " host:1",
        "host:1\n",
        "host: 1",
        "host:\u0661",
        "host:000001",
        "h\u00f6st:1",
        "user@host:1",
        "host%25:1",
        "::1:1",
        "[::1:1",
        "::1]:1",
        "[host]:1",
        "[10.0.0.1]:1",
        "[[::1]]:1",
        "[::1%]:1",
        "[::1%eth0,unix:/x]:1",
        "[::1]:1:1",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        HostPort.parse(text)


def test_a_list_of_addresses() -> None:
    assert parse_list("a:1, [::1]:2 ,") == ("a:1", "[::1]:2")
    assert parse_list("") == ()
    with pytest.raises(ValueError, match="'b' is not"):
        parse_list("a:1,b")


@pytest.mark.parametrize(
    ("host", "here"),
    [("localhost", True), ("127.0.0.9", True), ("::1", True), ("0.0.0.0", False), ("::", False), ("router", False)],
)
def test_only_this_machine_reaches_loopback(host: str, here: bool) -> None:
    assert is_loopback(host) is here
