"""`kakeya health ADDRESS`: asks a server for its health, as a container's health check does."""

import argparse
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

SUMMARY = "ask a router or worker whether it is serving (exit status 0 or 1)"


def check(address: str, service: str = "", timeout_seconds: float = 3.0) -> str:
    """The health of a service as grpc.health.v1 names it, or the gRPC status of the failed call."""
    with grpc.insecure_channel(address) as channel:
        try:
            response = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service=service), timeout=timeout_seconds
            )
        except grpc.RpcError as error:
            return str(error.code().name)
    return health_pb2.HealthCheckResponse.ServingStatus.Name(response.status)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="kakeya health", description=SUMMARY)
    parser.add_argument("address", help="HOST:PORT of a router or worker")
    parser.add_argument("--service", default="", help="full gRPC service name (default: the server as a whole)")
    parser.add_argument("--timeout-seconds", type=float, default=3.0, help="how long to wait (default: 3)")
    arguments = parser.parse_args(argv)
    status = check(arguments.address, arguments.service, arguments.timeout_seconds)
    print(f"{arguments.address} {status}", file=sys.stdout if status == "SERVING" else sys.stderr)
    return 0 if status == "SERVING" else 1
