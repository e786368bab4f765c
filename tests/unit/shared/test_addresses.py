import pytest

from kakeya_shared.addresses import HostPort, is_loopback, parse_list


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("localhost:1", "localhost", 1), ("[::1]:0", "::1", 0), ("10.0.0.1:65535", "10.0.0.1", 65535)],
)
def test_an_address_reads_as_it_is_written(text: str, host: str, port: int) -> None:
    assert HostPort.parse(text) == (host, port)
    assert str(HostPort.parse(text)) == text


@pytest.mark.parametrize("text", ["", "host", ":1", "host:", "host:x", "host:-1", "host:65536", "[]:1"])
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
