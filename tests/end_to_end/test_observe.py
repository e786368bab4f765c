"""`kakeya up --observe`: a real Prometheus scrapes every process, and a collector hears their spans."""

import os
import signal
import sys
from pathlib import Path

import pytest

from kakeya import AsyncClient
from tests.end_to_end.up_process import UpProcess
from tests.integration.processes import wait_until
from tests.prometheus_server import Prometheus, needs_prometheus

pytestmark = pytest.mark.timeout(600)  # a whole stack each, beside whatever else the machine does
ROOT = Path(__file__).resolve().parents[2]
FLAGS = ("--observe", "--bind", "127.0.0.1:0", "--window", "64", "--lanes", "2", "--threads", "1")
# No package brings a collector, so that this takes its place: it listens where the configuration says, and says each
# span in its log.
COLLECTOR = """#!{python}
import json, sys, time
sys.path.insert(0, {root!r})
from tests.integration.otlp_receiver import otlp_receiver
with open(sys.argv[1].removeprefix("--config=")) as file:
    config = json.load(file)
with otlp_receiver(config["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]) as receiver:
    num_said = 0
    while True:
        for span in receiver.spans[num_said:]:
            num_said += 1
            print(span.service, span.name, flush=True)
        time.sleep(0.05)
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    """PATH with a collector in it."""
    program = tmp_path / "bin" / "otelcol"
    program.parent.mkdir()
    program.write_text(COLLECTOR.format(python=sys.executable, root=str(ROOT)))
    program.chmod(0o755)
    return f"{program.parent}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.heavy
@needs_prometheus
async def test_all_is_watched_and_ends_in_order(tmp_path: Path, path: str) -> None:
    data = tmp_path / "data"
    environment = {"PATH": path, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    flags = (*FLAGS, "--http-bind", "127.0.0.1:0", "--data-dir", str(data))
    with UpProcess(*flags, environment=environment) as up:
        async with AsyncClient(up.wait_ready()) as client, await client.create_session() as session:
            assert len(await session.turn([1, 2, 3], max_tokens=8).all()) == 8
        prometheus = Prometheus(up.row("prometheus")[1])
        wait_until(lambda: prometheus.targets() == dict.fromkeys(("router", "worker-1", "http"), ""), "all are scraped")
        wait_until(lambda: prometheus.value("sum(kakeya_worker_generated_tokens_total)") == 8, "the tokens are seen")
        assert "KakeyaWorkerLost" in prometheus.rules()
        heard = up.log("collector")
        wait_until(lambda: "kakeya-worker prefill" in heard.read_text(), "the collector hears of the turn")
        assert up.wait_end(signal.SIGTERM)[0] == 0
        assert up.processes() == []
    lines = (data / "logs" / "supervisor.log").read_text().splitlines()
    stopped = [line.split("stopped: ")[1].split()[0] for line in lines if "stopped: " in line]
    assert stopped == ["prometheus", "http", "worker-1", "router", "redis", "collector"]
    assert not [line for line in lines if "killing" in line], "something had to be killed"
    assert {file.name for file in (data / "observe").iterdir()} == {
        *("alerts.yaml", "prometheus.yaml", "collector.yaml", "prometheus-data"),
    }
