"""What the shim's process holds, seen from outside."""

from dataclasses import dataclass
from urllib.request import urlopen

import psutil
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.processes import Process

_REQUEST_SECONDS = 10.0


@dataclass(frozen=True)
class Holdings:
    """Of the process at one moment."""

    num_files: int
    num_threads: int
    resident_bytes: int


def holdings(shim: Process) -> Holdings:
    process = psutil.Process(shim.process.pid)
    return Holdings(process.num_fds(), process.num_threads(), process.memory_info().rss)


def samples(shim: Process) -> dict[str, float]:
    """What /metrics says, summed over labels."""
    with urlopen(f"http://{shim.address}/metrics", timeout=_REQUEST_SECONDS) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found
