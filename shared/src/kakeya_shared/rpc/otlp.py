"""An OpenTelemetry collector as the standard OTEL_ variables name it, in the same words for whatever is sent.

They say whether, where to and by which protocol. What is not read here (headers, certificates, time-outs, compression)
OpenTelemetry's own exporters read, and its SDK how many spans and in which batches.
"""

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import SplitResult, urlsplit

from kakeya_shared.rpc.proxies import PAST_PROXY
from kakeya_shared.settings.addresses import is_loopback

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

GRPC, HTTP = "grpc", "http/protobuf"


@dataclass(frozen=True)
class Signal:
    """A kind of what is sent.

    Attributes:
        name: as it stands in the variables.
    """

    name: Literal["TRACES", "METRICS"]

    def is_wanted(self, environment: Mapping[str, str] = os.environ) -> bool:
        """Whether it is to be exported over OTLP."""
        if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
            return False
        exporter = environment.get(f"OTEL_{self.name}_EXPORTER", "")
        if exporter:
            return "otlp" in exporter.split(",")
        return any(environment.get(name) for name in self._endpoints)

    @property
    def protocol(self) -> str:
        return _first(self._protocols) or GRPC

    def check(self) -> None:
        """Raises ValueError: where it is wanted, the variables name no collector that is spoken to here."""
        if self.is_wanted():
            self.exporter_options()

    def exporter_options(self) -> dict[str, Any]:
        """What the exporter of its protocol is made with, to reach a collector on this machine past any proxy.

        Raises:
            ValueError: the variables name no URL of a collector, or no protocol of OTLP that is spoken here.
        """
        collector = self._collector()
        is_here = is_loopback(collector.hostname or "")
        if self.protocol == GRPC:
            return {"channel_options": (PAST_PROXY,) if is_here else None}
        if self.protocol != HTTP:
            raise ValueError(f"{' or '.join(self._protocols)} is {self.protocol!r}, and can be {GRPC} or {HTTP}")
        if collector.scheme not in ("http", "https"):
            raise ValueError(f"{' or '.join(self._endpoints)} is not a URL of {HTTP}: {_first(self._endpoints)!r}")
        import requests  # only where it is used

        session = requests.Session()
        session.trust_env = not is_here
        return {"session": session}

    @property
    def _endpoints(self) -> tuple[str, str]:
        return f"OTEL_EXPORTER_OTLP_{self.name}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"

    @property
    def _protocols(self) -> tuple[str, str]:
        return f"OTEL_EXPORTER_OTLP_{self.name}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"

    def _collector(self) -> SplitResult:
        url = _first(self._endpoints) or "http://localhost"
        try:
            return urlsplit(url if "//" in url else f"//{url}")
        except ValueError as error:
            raise ValueError(f"{' or '.join(self._endpoints)} is not a URL: {error}") from error


TRACES, METRICS = Signal("TRACES"), Signal("METRICS")


def resource(service: str) -> "Resource":
    """Who this process is: service kakeya-`service`, and an instance of its own.

    An operator who names them in OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES has the last word.
    """
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    named = Resource({"service.name": f"kakeya-{service}", "service.instance.id": _instance_id()})
    return Resource.create().merge(named.merge(OTELResourceDetector().detect()))


@cache  # made when it is asked for: a process that was forked is another one
def _instance_id() -> str:
    return str(uuid.uuid4())


def _first(names: tuple[str, ...]) -> str:
    """The value of the first variable that is set, "" for none."""
    return next((given for name in names if (given := os.environ.get(name))), "")
