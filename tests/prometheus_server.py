"""A real Prometheus (Debian's package `prometheus`) that scrapes what a test runs, and what it answers."""

import json
import math
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.ports import free_port

_SECONDS = 60.0
PROMETHEUS = shutil.which("prometheus")
needs_prometheus = pytest.mark.skipif(
    PROMETHEUS is None, reason="prometheus is not installed (Debian: apt-get install prometheus)"
)


class Series(NamedTuple):
    """Labels, and what was a number at some moment; what was NaN is left out."""

    labels: dict[str, str]
    values: list[float]


@dataclass(frozen=True)
class Prometheus:
    """One that runs, by its HTTP API."""

    address: str

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"http://{self.address}/-/ready", timeout=_SECONDS, trust_env=False).is_success
        except httpx.TransportError:
            return False

    def over(self, expr: str, began: float, *, step_seconds: float = 1.0) -> list[Series]:
        """What a panel draws from a moment (seconds since the epoch) until now, as Grafana asks for it."""
        parameters = {"query": expr, "start": f"{began:.3f}", "end": f"{time.time():.3f}", "step": f"{step_seconds:g}"}
        drawn = [
            Series(each["metric"], [value for _, text in each["values"] if not math.isnan(value := float(text))])
            for each in self._ask("query_range", parameters)["result"]
        ]
        return [series for series in drawn if series.values]

    def value(self, expr: str) -> float:
        """Of the one series that an expression has now; NaN where it has none."""
        found = self._ask("query", {"query": expr})["result"]
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else math.nan

    def traces(self, metric: str, began: float) -> set[str]:
        """Ids of the traces that a histogram's buckets have had exemplars of since a moment."""
        parameters = {"query": f"{metric}_bucket", "start": f"{began:.3f}", "end": f"{time.time():.3f}"}
        found = self._ask("query_exemplars", parameters)
        return {exemplar["labels"]["trace_id"] for series in found for exemplar in series["exemplars"]}

    def targets(self) -> dict[str, str]:
        """By HOST:PORT of those that are scraped: "", or what was wrong the last time."""
        return {
            each["labels"]["instance"]: "" if each["health"] == "up" else each["lastError"] or each["health"]
            for each in self._ask("targets", {"state": "active"})["activeTargets"]
        }

    def firing(self) -> dict[str, dict[str, str]]:
        """Annotations of the alerts that fire now, by name."""
        alerts = self._ask("alerts", {})["alerts"]
        return {each["labels"]["alertname"]: each["annotations"] for each in alerts if each["state"] == "firing"}

    def rules(self) -> dict[str, str]:
        """By name of the alerts that it knows: its health."""
        groups = self._ask("rules", {"type": "alert"})["groups"]
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}

    def _ask(self, what: str, parameters: Mapping[str, str]) -> Any:
        url = f"http://{self.address}/api/v1/{what}"
        answer = httpx.get(url, params=dict(parameters), timeout=_SECONDS, trust_env=False).json()
        assert answer["status"] == "success", answer
        return answer["data"]


class Targets:
    """Whom a Prometheus scrapes, in files that it reads again when they change."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def set(self, job: str, addresses: Sequence[str]) -> None:
        """All of a job, each as HOST:PORT."""
        made = self._directory / f"{job}.json.new"
        made.write_text(json.dumps([{"targets": list(addresses)}]))
        made.replace(self._directory / f"{job}.json")


@contextmanager
def prometheus_server(
    directory: Path, jobs: Mapping[str, Sequence[str]], rules: Path, *, interval: str
) -> Iterator[tuple[Prometheus, Targets]]:
    """Scrapes and looks at its rules every `interval`; stopped at the end.

    Args:
        jobs: addresses by the name of their job.
        rules: a file of alerts.
    """
    assert PROMETHEUS is not None
    targets = Targets(directory)
    for job, addresses in jobs.items():
        targets.set(job, addresses)
    config = directory / "prometheus.yaml"
    config.write_text(json.dumps(_config(directory, jobs, rules, interval)))  # which is YAML, too
    address = f"127.0.0.1:{free_port()}"
    flags = {"config.file": config, "storage.tsdb.path": directory / "data", "web.listen-address": address}
    command = [PROMETHEUS, *(f"--{name}={value}" for name, value in flags.items()), "--enable-feature=exemplar-storage"]
    with (directory / "prometheus.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            made, deadline = Prometheus(address), time.monotonic() + _SECONDS
            while not made.is_ready():
                assert process.poll() is None, (directory / "prometheus.log").read_text()
                assert time.monotonic() < deadline, "Prometheus is not ready"
                time.sleep(0.05)
            yield made, targets
        finally:
            process.terminate()


def _config(directory: Path, jobs: Mapping[str, Sequence[str]], rules: Path, interval: str) -> dict[str, Any]:
    return {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": [str(rules)],
        "scrape_configs": [
            {
                "job_name": job,
                "file_sd_configs": [{"files": [str(directory / f"{job}.json")], "refresh_interval": "1s"}],
            }
            for job in jobs
        ],
    }
