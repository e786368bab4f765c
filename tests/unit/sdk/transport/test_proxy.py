"""Which variable's proxy gRPC goes through, and what the commands say of it."""

import pytest

from kakeya._transport import _proxy
from kakeya.cli.commands import keys
from tests.refusing_proxy import refusing_proxy

HTTP = "http://proxy:3128"
CASES = [
    ("example.com:1", {}, ""),
    ("example.com:1", {"http_proxy": HTTP}, "http_proxy"),
    ("example.com:1", {"http_proxy": HTTP, "grpc_proxy": HTTP, "https_proxy": HTTP}, "grpc_proxy"),
    ("example.com:1", {"http_proxy": HTTP, "https_proxy": ""}, ""),
    ("example.com:1", {"http_proxy": "socks5://proxy:1"}, ""),
    ("example.com:1", {"HTTP_PROXY": HTTP, "all_proxy": HTTP}, ""),
    ("example.com:1", {"http_proxy": HTTP, "no_proxy": ".org, EXAMPLE.com"}, ""),
    ("example.com:1", {"http_proxy": HTTP, "no_proxy": "example.com", "no_grpc_proxy": "else"}, "http_proxy"),
    ("10.1.2.3:1", {"http_proxy": HTTP, "no_proxy": "10.0.0.0/8"}, ""),
    ("10.1.2.3:1", {"http_proxy": HTTP, "no_proxy": "11.0.0.0/8,example.com"}, "http_proxy"),
    ("[2001:db8::1]:1", {"http_proxy": HTTP}, "http_proxy"),
    ("127.0.0.1:1", {"http_proxy": HTTP}, ""),
    ("[::1]:1", {"http_proxy": HTTP}, ""),
    ("localhost:1", {"http_proxy": HTTP}, ""),
    ("unix:/run/kakeya.sock", {"http_proxy": HTTP}, ""),
]


@pytest.mark.parametrize(("address", "environment", "variable"), CASES)
def test_the_variable_is_found_as_grpc_finds_it(address: str, environment: dict[str, str], variable: str) -> None:
    assert _proxy.variable(address, environment) == variable


def test_a_command_says_how_to_go_past_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with refusing_proxy(monkeypatch) as proxy:
        assert keys.main(["list", "--address", "router.invalid:50051"]) == 1
    assert proxy.requests
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("kakeya keys: error: no runtime answers at router.invalid:50051 (")
    assert line.endswith("the way there goes through the proxy of $https_proxy: no_proxy=router.invalid goes past it")
