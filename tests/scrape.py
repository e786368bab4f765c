"""Reads expositions, as Prometheus does."""

from dataclasses import dataclass
from http.client import HTTPConnection

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
_SECONDS = 60.0


@dataclass(frozen=True)
class Exposition:
    """What one reading has shown; `families` by name, without `_total`."""

    text: str
    families: dict[str, Metric]

    @classmethod
    def of(cls, text: str) -> "Exposition":
        parse = open_metrics if text.endswith("# EOF\n") else plain_text
        return cls(text, {family.name: family for family in parse(text)})

    def value(self, name: str, **labels: str) -> float:
        """Of one sample, by its whole name and these labels; 0 where there is none: a counter is made by its first."""
        found = self.values(name, **labels)
        assert len(found) <= 1, f"{name} {labels}: {found}"
        return found[0] if found else 0.0

    def values(self, name: str, **labels: str) -> list[float]:
        """Of all samples with these labels, whatever others they have."""
        return [
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Of all samples, by the value of one label."""
        return {
            sample.labels[label]: sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name
        }


def scrape(address: str, accept: str = "") -> Exposition:
    """GET /metrics of HOST:PORT."""
    status, _, text = get(address, "/metrics", accept)
    assert status == 200, text
    return Exposition.of(text)


def get(address: str, path: str, accept: str = "", method: str = "GET") -> tuple[int, str, str]:
    """The status of an answer, its type and its text."""
    connection = HTTPConnection(address, timeout=_SECONDS)
    try:
        connection.request(method, path, headers={"Accept": accept})
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type", ""), answer.read().decode()
    finally:
        connection.close()
