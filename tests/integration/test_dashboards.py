"""A real Prometheus scrapes a run in which everything happens: every panel draws, and the alerts fire and stop."""

import re
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml

from kakeya_shared import installed_models
from ops.grafana.board import Query
from ops.grafana.boards import BOARDS
from ops.grafana.promql import WINDOW
from tests.integration.credentials import operator_of
from tests.integration.eventful_run import LANES, ROUTER_FLAGS, SHIM_FLAGS, EventfulRun
from tests.integration.open_http import MODEL
from tests.integration.otlp_receiver import OtlpReceiver, otlp_receiver
from tests.integration.processes import Runtime, asking_for_keys, runtime, wait_until
from tests.prometheus_server import Prometheus, Series, needs_prometheus, prometheus_server

pytestmark = [pytest.mark.heavy, needs_prometheus, pytest.mark.timeout(300)]

RULES = Path(__file__).resolve().parents[2] / "ops" / "prometheus" / "alerts.yaml"
SCRAPE, SECONDS, PATIENCE = "500ms", "6s", "1s"
"""Between two scrapes; instead of the minutes over which an alert looks, and of those for which it must hold."""
ALERTS = (
    "KakeyaWorkerLost",
    "KakeyaSlowRecovery",
    "KakeyaCallsQueue",
    "KakeyaCallsRefused",
    "KakeyaParksForRoom",
)
NOTHING_OF_IT = {
    "Sessions lost": "no history is lost",
    "Invariants violated": "none is",
    "Taken over": "no router vanishes",
    "Leases lost": "no worker comes back",
    "Redis failures": "it answers",
    "Places without names": "all get theirs",
}
"""Panels that show zero of this run, and why."""
OF_STEPS = {"kakeya_worker_step_seconds", "kakeya_worker_prefill_token_seconds"}
"""Measured where sessions of several calls share a step: there is no one trace."""


def quick_rules(directory: Path) -> Path:
    """The alerts with their expressions as they are, but over seconds instead of minutes and hours.

    What differs from the file is the length of ranges (`[10m]`) and of `for`, and nothing else: a test cannot wait for
    an hour until an alert stops.
    """
    document = yaml.safe_load(RULES.read_text())
    for group in document["groups"]:
        for rule in group["rules"]:
            rule["expr"] = re.sub(r"\[\d+[mh]\]", f"[{SECONDS}]", rule["expr"])
            if "for" in rule:
                rule["for"] = PATIENCE
    quick = directory / "alerts.yaml"
    quick.write_text(yaml.safe_dump(document))
    return quick


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as made:
        yield made


@pytest.fixture
async def observed(tmp_path: Path, receiver: OtlpReceiver) -> AsyncIterator[tuple[EventfulRun, Runtime, Prometheus]]:
    environment = (
        asking_for_keys()
        | receiver.environment()
        | {
            "KAKEYA_WORKER_SNAPSHOTS": str(tmp_path / "snapshots"),
            "KAKEYA_WORKER_SHUTDOWN_GRACE_SECONDS": "8",  # after half of which what runs is handed over
        }
    )
    model = installed_models.directory(MODEL)
    with runtime(model, tmp_path, num_workers=0, router_flags=ROUTER_FLAGS, environment=environment) as made:
        made.start_router(*ROUTER_FLAGS)
        for _ in range(2):
            made.start_worker("--weights=int8", lanes=LANES)
        made.start_http(*SHIM_FLAGS)
        made.wait_for_workers(2)
        jobs = {
            "kakeya-router": [each.metrics for each in made.routers],
            "kakeya-worker": [each.metrics for each in made.workers],
            "kakeya-http": [made.shims[0].address],
        }
        with (
            operator_of(made) as operator,
            prometheus_server(tmp_path, jobs, quick_rules(tmp_path), interval=SCRAPE) as (prometheus, targets),
        ):
            wait_until(lambda: not any(prometheus.targets().values()), "all are scraped")
            async with EventfulRun(made, operator, prometheus, targets) as run:
                yield run, made, prometheus


def flaws(title: str, query: Query, drawn: list[Series]) -> list[str]:
    """What is wrong with a query's lines."""
    if not drawn:
        return [f"{title}: no data of {query.expr}"]
    named = re.findall(r"{{(\w+)}}", query.legend)
    found = [f"{title}: a line without {name}" for name in named if not all(each.labels.get(name) for each in drawn)]
    is_zero = not any(value for each in drawn for value in each.values)
    if is_zero != (title in NOTHING_OF_IT):
        found.append(f"{title}: {'nothing but zeros' if is_zero else 'not zero'} of {query.expr}")
    return found


def histograms() -> set[str]:
    """Whose exemplars panels draw."""
    exprs = [query.expr for board in BOARDS for panel in board.panels for query in panel.queries if query.has_exemplars]
    return {name for expr in exprs for name in re.findall(r"(kakeya_\w+)_bucket", expr)}


async def test_every_panel_draws_and_alerts_fire_and_stop(
    observed: tuple[EventfulRun, Runtime, Prometheus], receiver: OtlpReceiver
) -> None:
    run, made, prometheus = observed
    began = time.time() - 5.0
    await run.converse_over_http()
    await run.fork_park_and_expire()
    await run.take_turns_over_few_lanes()
    answers = await run.lose_a_worker_with_all_lanes_taken()
    await run.replace_a_worker(answers)
    alive = [each.metrics for each in (*made.routers, made.workers[-1])]
    wait_until(lambda: {prometheus.targets().get(each) for each in alive} == {""}, "those that live are scraped")
    found = [
        flaw
        for board in BOARDS
        for panel in board.panels
        for query in panel.queries
        for flaw in flaws(panel.title, query, prometheus.over(query.expr.replace(WINDOW, SECONDS), began))
    ]
    assert found == []
    traces = {histogram: prometheus.traces(histogram, began) for histogram in histograms() - OF_STEPS}
    assert all(traces.values()), traces
    wait_until(
        lambda: set().union(*traces.values()) <= receiver.trace_ids(), "the traces that exemplars name were sent"
    )
    assert set(prometheus.rules().values()) == {"ok"}
    wait_until(lambda: not set(ALERTS) & set(prometheus.firing()), "all alerts have stopped")
