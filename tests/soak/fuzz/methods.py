"""Every method that is served, by descriptor: a new one is fuzzed without being named here."""

from collections import Counter
from dataclasses import dataclass

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2

from kakeya_stubs.admin.v1 import admin_pb2
from kakeya_stubs.v1 import runtime_pb2
from kakeya_stubs.worker.v1 import registry_pb2, verifier_pb2

RUNTIME = "kakeya.v1.RuntimeService"
VERIFIER = "kakeya.worker.v1.VerifierService"
REGISTRY = "kakeya.worker.v1.RegistryService"
ADMIN = "kakeya.admin.v1.AdminService"
HEALTH = "grpc.health.v1.Health"

# A share of the calls; the public API has the largest, since it is what strangers reach.
_WEIGHTS = {RUNTIME: 50, VERIFIER: 22, REGISTRY: 12, ADMIN: 14, HEALTH: 2}
# Of the calls of a service: sessions must come to be, and last for a while, to be reached.
_FACTORS = {"CreateSession": 1.5, "OpenSession": 1.5, "AppendTokens": 1.5, "Append": 1.5, "Generate": 1.5, "Turn": 1.5}
_FACTORS |= {"CloseSession": 0.4, "Stop": 0.5}


@dataclass(frozen=True)
class Method:
    """One rpc.

    Attributes:
        path: as it stands in the request's head, "/SERVICE/NAME".
        streams: whether it answers with a stream.
    """

    service: str
    name: str
    request: type[Message]
    response: type[Message]
    streams: bool

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"


def _methods(service: ServiceDescriptor) -> list[Method]:
    return [
        Method(service.full_name, each.name, *_classes(each), each.server_streaming)
        for each in service.methods
        if each.full_name != "grpc.health.v1.Health.Watch"  # never ends
    ]


def _classes(method: MethodDescriptor) -> tuple[type[Message], type[Message]]:
    return GetMessageClass(method.input_type), GetMessageClass(method.output_type)


METHODS = [
    method
    for file in (runtime_pb2, verifier_pb2, registry_pb2, admin_pb2, health_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in _methods(service)
]
_NUM_METHODS = Counter(method.service for method in METHODS)
WEIGHTS = [_WEIGHTS[each.service] * _FACTORS.get(each.name, 1) / _NUM_METHODS[each.service] for each in METHODS]
BY_PATH = {method.path: method for method in METHODS}
