"""Health checking v1 and reflection on every service, as ready-made tools use them."""

from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.integration.processes import Runtime

ROUTER_SERVICES = (
    "kakeya.v1.RuntimeService",
    "kakeya.worker.v1.RegistryService",
    "kakeya.admin.v1.AdminService",
)
WORKER_SERVICES = ("kakeya.worker.v1.VerifierService",)
STANDARD_SERVICES = {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}


def _addresses(made: Runtime) -> list[tuple[str, tuple[str, ...]]]:
    return [(made.routers[0].address, ROUTER_SERVICES), (made.workers[0].address, WORKER_SERVICES)]


def test_health_of_the_server_and_of_each_service(shared_runtime: Runtime) -> None:
    for address, services in _addresses(shared_runtime):
        with grpc.insecure_channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            for service in ("", *services):
                response = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=60)
                assert response.status == health_pb2.HealthCheckResponse.SERVING
            with pytest.raises(grpc.RpcError) as caught:
                stub.Check(health_pb2.HealthCheckRequest(service="no.such.Service"), timeout=60)
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def _reflect(channel: grpc.Channel, **query: Any) -> reflection_pb2.ServerReflectionResponse:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    (response,) = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(**query)]), timeout=60)
    return response


def test_reflection_lists_the_services_and_their_messages(shared_runtime: Runtime) -> None:
    for address, services in _addresses(shared_runtime):
        with grpc.insecure_channel(address) as channel:
            listed = _reflect(channel, list_services="").list_services_response.service
            assert {service.name for service in listed} == {*services, *STANDARD_SERVICES}
            for service in services:
                files = _reflect(channel, file_containing_symbol=service).file_descriptor_response
                file = FileDescriptorProto.FromString(files.file_descriptor_proto[0])
                assert f"{file.package}.{file.service[0].name}" == service
