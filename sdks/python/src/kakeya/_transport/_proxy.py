"""HTTP proxies of the environment, which gRPC goes through: never to this machine, and said where it does.

gRPC takes the first of grpc_proxy, https_proxy and http_proxy that is set, and where that is empty none; no_grpc_proxy,
else no_proxy, lists what is reached without: ends of names, and networks (http_proxy_mapper.cc).
"""

import os
from collections.abc import Mapping
from ipaddress import ip_address, ip_network

_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")


def options(address: str) -> list[tuple[str, int]]:
    """Of a channel to an address as gRPC has it."""
    return [("grpc.enable_http_proxy", 0)] if is_here(address) else []


def variable(address: str, environment: Mapping[str, str] = os.environ) -> str:
    """The variable whose proxy a channel to an address goes through, "" for none."""
    name = next((name for name in _VARIABLES if name in environment), "")
    goes_by_it = name and environment[name].startswith("http://") and not is_here(address)
    return name if goes_by_it and not _is_exception(host_of(address), environment) else ""


def host_of(address: str) -> str:
    """The host of [SCHEME:]HOST[:PORT], without brackets."""
    target = address.removeprefix("dns:///").removeprefix("ipv4:").removeprefix("ipv6:")
    return target.rpartition(":")[0].strip("[]") or target


def is_here(address: str) -> bool:
    """Whether an address is this machine's alone: a socket in the file system, or on loopback."""
    host = host_of(address)
    if host == "localhost" or address.startswith(("unix:", "unix-abstract:")):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name
        return False


def _is_exception(host: str, environment: Mapping[str, str]) -> bool:
    listed = environment.get("no_grpc_proxy", environment.get("no_proxy", "")).split(",")
    return any(host.lower().endswith(part.lower()) or _is_in(host, part) for each in listed if (part := each.strip()))


def _is_in(host: str, network: str) -> bool:
    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:  # names
        return False
