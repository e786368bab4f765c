"""HTTP proxies of the environment, which gRPC goes through: never to this machine, and said where it does.

gRPC takes the first of grpc_proxy, https_proxy and http_proxy that is set, and where that is empty none; no_grpc_proxy,
else no_proxy, lists what is reached without: ends of names, and networks (http_proxy_mapper.cc).
"""

import os
from collections.abc import Mapping
from ipaddress import ip_address, ip_network

from kakeya_shared.settings.addresses import HostPort, is_loopback

PAST_PROXY = ("grpc.enable_http_proxy", 0)
"""The channel option that goes past the proxy."""

_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")
_EXCEPTIONS = ("no_grpc_proxy", "no_proxy")


def options(address: str) -> list[tuple[str, int]]:
    """Of a channel to HOST:PORT, or to anything else that gRPC knows."""
    return [PAST_PROXY] if is_loopback(_host(address)) else []


def variable(address: str, environment: Mapping[str, str] = os.environ) -> str:
    """The variable whose proxy such a channel goes through, "" for none."""
    host = _host(address)
    name = next((name for name in _VARIABLES if name in environment), "")
    goes_by_it = name and environment[name].startswith("http://") and not is_loopback(host)
    return name if goes_by_it and not _is_exception(host, environment) else ""


def with_exception(host: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The variable that lets gRPC in other processes go past any proxy to `host`, beside what it lists already."""
    name = _exceptions(environment)
    return {name: ",".join(filter(None, (environment.get(name), host)))}


def _host(address: str) -> str:
    try:
        return HostPort.parse(address).host
    except ValueError:
        return "localhost" if address.startswith("unix") else address


def _exceptions(environment: Mapping[str, str]) -> str:
    return next((name for name in _EXCEPTIONS if name in environment), _EXCEPTIONS[-1])


def _is_exception(host: str, environment: Mapping[str, str]) -> bool:
    listed = environment.get(_exceptions(environment), "").split(",")
    return any(host.lower().endswith(part.lower()) or _is_in(host, part) for each in listed if (part := each.strip()))


def _is_in(host: str, network: str) -> bool:
    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:  # names
        return False
