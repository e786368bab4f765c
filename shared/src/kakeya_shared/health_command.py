"""`kakeya health ADDRESS`: asks a server for its health, as a container's health check does."""

import argparse
import os
import sys
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kakeya_shared.rpc import proxies
from kakeya_shared.rpc.tls import TlsError, client_tls

SUMMARY = "ask a router or worker whether it is serving (exit status 0 or 1)"
EXIT_USAGE = 2


def check(
    address: str,
    service: str = "",
    timeout_seconds: float = 3.0,
    credentials: grpc.ChannelCredentials | None = None,
) -> str:
    """The health of a service as grpc.health.v1 names it, or the gRPC status of the failed call."""
    with _channel(address, credentials) as channel:
        try:
            response = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service=service), timeout=timeout_seconds
            )
        except grpc.RpcError as error:
            return str(error.code().name)
    return health_pb2.HealthCheckResponse.ServingStatus.Name(response.status)


def main(argv: list[str]) -> int:
    arguments = _parser().parse_args(argv)
    try:
        tls = client_tls(arguments.tls_ca, arguments.tls_cert, arguments.tls_key)
    except TlsError as error:
        print(f"kakeya health: error: {error}", file=sys.stderr)
        return EXIT_USAGE
    try:
        arguments.address.encode()
    except UnicodeEncodeError:
        print(f"kakeya health: error: {arguments.address!a} is not HOST:PORT", file=sys.stderr)
        return EXIT_USAGE
    credentials = None if tls is None else tls.credentials()
    status = check(arguments.address, arguments.service, arguments.timeout_seconds, credentials)
    if status == "UNAVAILABLE" and (variable := proxies.variable(arguments.address)):
        status += f" (through the proxy of ${variable}; no_proxy lists what is reached without)"
    print(f"{arguments.address} {status}", file=sys.stdout if status == "SERVING" else sys.stderr)
    return 0 if status == "SERVING" else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kakeya health", description=SUMMARY)
    parser.add_argument("address", help="HOST:PORT of a router or worker")
    parser.add_argument("--service", default="", help="full gRPC service name (default: the server as a whole)")
    parser.add_argument("--timeout-seconds", type=float, default=3.0, help="how long to wait (default: 3)")
    files = {
        "--tls-ca": "use TLS and trust these authorities",
        "--tls-cert": "certificate to show, where the server asks for one",
        "--tls-key": "its key",
    }
    for flag, help_text in files.items():
        variable = "KAKEYA_" + flag.removeprefix("--").upper().replace("-", "_")
        default = os.environ.get(variable) or None
        help_text += f", in PEM (default: ${variable})"
        parser.add_argument(flag, type=Path, default=default, metavar="FILE", help=help_text)
    return parser


def _channel(address: str, credentials: grpc.ChannelCredentials | None) -> grpc.Channel:
    options = proxies.options(address)
    return (
        grpc.secure_channel(address, credentials, options) if credentials else grpc.insecure_channel(address, options)
    )
