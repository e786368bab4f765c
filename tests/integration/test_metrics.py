"""What router and worker show to Prometheus, beside what holds."""

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kakeya
from tests.integration.http_stack import HttpStack
from tests.integration.processes import LONG_SECONDS, Process, Runtime, eventually, runtime, wait_until
from tests.scrape import OPEN_METRICS, Exposition, scrape

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
PROMTOOL = shutil.which("promtool")
SERVICES = ("router", "worker", "HTTP shim")
LOAD_SECONDS = float(os.environ.get("KAKEYA_TEST_LOAD_SECONDS", "0"))
"""How long the sums are looked at while sessions are at work; else until there is enough to compare."""
BEATS = ("--heartbeat-interval-seconds", "0.2")


@pytest.fixture(scope="module")
def measured(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """Two workers of eight lanes each, all of which show their metrics."""
    with runtime(model, tmp_path_factory.mktemp("measured"), num_workers=2, router_flags=BEATS) as made:
        yield made


class Heard(threading.Thread):
    """What workers have said with each heartbeat, read off them again and again.

    Attributes:
        by_number: live bytes, by worker and heartbeat.
        scrapes: how many there were.
        wrong: what did not agree.
    """

    def __init__(self, workers: list[Process]) -> None:
        super().__init__(daemon=True)
        self._workers = workers
        self._is_over = threading.Event()
        self.by_number: dict[tuple[str, int], float] = {}
        self.scrapes = 0
        self.wrong: list[str] = []

    def run(self) -> None:
        while not self._is_over.wait(0.02):
            for worker in self._workers:
                self._look(worker.worker_id, scrape(worker.metrics))

    def _look(self, worker_id: str, seen: Exposition) -> None:
        self.scrapes += 1
        number = int(seen.value("kakeya_worker_heartbeat_number"))
        said = seen.value("kakeya_worker_heartbeat_kv_live_bytes")
        if self.by_number.setdefault((worker_id, number), said) != said:
            self.wrong.append(f"heartbeat {number} of {worker_id} has said two things")
        lanes = seen.by_label("kakeya_worker_lane_kv_live_bytes", "lane")
        if seen.value("kakeya_worker_kv_live_bytes") != sum(lanes.values()):
            self.wrong.append(f"the sum of {worker_id} is not that of its lanes: {lanes}")
        if seen.value("kakeya_worker_lanes", state="used") != len(lanes):
            self.wrong.append(f"{worker_id} counts other lanes than {lanes}")

    def end(self) -> None:
        self._is_over.set()
        self.join()


def shown_by_router(seen: Exposition) -> dict[tuple[str, int], float]:
    """What it shows of each worker, by worker and heartbeat."""
    numbers = seen.by_label("kakeya_router_worker_heartbeat_number", "worker")
    live = seen.by_label("kakeya_router_worker_kv_live_bytes", "worker")
    return {(worker, int(number)): live[worker] for worker, number in numbers.items()}


async def talk(client: kakeya.AsyncClient, num_turns: int) -> None:
    """Turns of 5 tokens, and answers of 40."""
    async with await client.create_session() as session:
        for turn in range(num_turns):
            await session.append([1 + turn, 2, 3, 4, 5])
            async for _ in session.generate(max_tokens=40, temperature=1.0, seed=turn):
                pass


@pytest.mark.timeout(LOAD_SECONDS + 180)
async def test_a_routers_total_is_what_workers_reported_under_the_heartbeats_that_it_shows(measured: Runtime) -> None:
    heard, shown = Heard(measured.workers), list[dict[tuple[str, int], float]]()
    until = time.monotonic() + LOAD_SECONDS
    heard.start()
    async with kakeya.AsyncClient(measured.address) as client:
        sessions = [await client.create_session() for _ in range(6)]

        async def enough() -> bool:
            """Looks at the router while six sessions are at work."""
            for turn, session in enumerate(sessions):
                await session.append([turn + 1, 2, 3])
                async for _ in session.generate(max_tokens=4, temperature=1.0, seed=turn):
                    pass
            seen = scrape(measured.routers[0].metrics)
            parts = shown_by_router(seen)
            assert seen.value("kakeya_router_kv_live_bytes") == sum(parts.values())
            shown.append(parts)
            seen_twice = {part for parts in shown for part in parts.items() if part[1] and part[0] in heard.by_number}
            return len(seen_twice) > 12 and time.monotonic() > until

        await eventually(enough, "a dozen heartbeats are seen on both sides", LOAD_SECONDS + LONG_SECONDS)
        heard.end()
        compared = [(part, said) for parts in shown for part, said in parts.items() if part in heard.by_number]
        print(f"{len(shown)} scrapes of the router, {heard.scrapes} of workers, {len(compared)} sums compared")
        assert [part for part, said in compared if heard.by_number[part] != said] == []
        assert len({said for _, said in compared}) > 3, "and the bytes were not always the same"
        assert heard.wrong == []
        await all_agree(measured, sessions)
        for session in sessions:
            await session.close()


async def all_agree(made: Runtime, sessions: list[Any]) -> None:
    """Nothing runs: once each worker has said so, all sums are the same."""
    infos = [await session.info() for session in sessions]
    live_bytes = sum(info.kv_live_bytes for info in infos)
    assert live_bytes
    assert sum(scrape(worker.metrics).value("kakeya_worker_kv_live_bytes") for worker in made.workers) == live_bytes
    router = made.routers[0].metrics
    wait_until(lambda: scrape(router).value("kakeya_router_kv_live_bytes") == live_bytes, "the router's is the same")
    seen = scrape(router)
    assert seen.value("kakeya_router_sessions", state="idle") == len(sessions)
    assert seen.value("kakeya_router_lanes", state="used") == len(sessions)
    assert seen.value("kakeya_running_requests") == seen.value("kakeya_queued_requests") == 0


async def test_tokens_steps_and_calls_are_counted_once(measured: Runtime) -> None:
    def total(name: str, **labels: str) -> float:
        return sum(scrape(process.metrics).value(name, **labels) for process in (*measured.routers, *measured.workers))

    names = [
        f"kakeya_{name}_total"
        for name in (
            *("router_appended_tokens", "router_generated_tokens"),
            *("worker_prefilled_tokens", "worker_generated_tokens", "worker_forgotten_tokens"),
        )
    ]
    before = {name: total(name) for name in names}
    async with kakeya.AsyncClient(measured.address) as client:
        await talk(client, 4)  # 180 tokens, of which 68 are kept
    grown = [total(name) - before[name] for name in names]
    assert grown == [20, 160, 20, 160, 180 - 68]
    router = scrape(measured.routers[0].metrics)
    assert router.value("kakeya_router_calls_total", method="kakeya.v1.RuntimeService/Generate", reason="OK") >= 4
    assert router.value("kakeya_router_time_to_first_token_seconds_count") >= 4
    assert router.value("kakeya_router_journal_groups_total") >= 4  # of 16 tokens
    assert router.value("kakeya_router_redis_up") == 1
    steps = sum(scrape(worker.metrics).value("kakeya_worker_step_seconds_count") for worker in measured.workers)
    rows = sum(scrape(worker.metrics).value("kakeya_worker_step_rows_sum") for worker in measured.workers)
    assert steps <= rows <= 8 * steps


class Documented(NamedTuple):
    """A line of docs/metrics.md."""

    name: str
    kind: str
    unit: str
    labels: list[str]
    meaning: str


def documented(service: str) -> list[Documented]:
    """All of a service."""
    section = PAGE.read_text().split(f"## {service}\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return [
        Documented(name.strip("`"), kind, unit, re.findall("`([a-z]+)`", labels), meaning)
        for name, kind, unit, labels, meaning in ([cell.strip() for cell in row] for row in rows)
    ]


def shown_by(measured: Runtime, http: HttpStack, service: str) -> str:
    """Where a service shows its metrics."""
    if service == "HTTP shim":
        return http.shim.address
    return {"router": measured.routers, "worker": measured.workers}[service][0].metrics


@pytest.mark.parametrize("service", SERVICES)
def test_the_reference_is_what_is_shown(measured: Runtime, http: HttpStack, service: str) -> None:
    families = scrape(shown_by(measured, http, service)).families
    shown = {
        (f"{name}_total" if family.type == "counter" else name, family.type, family.documentation)
        for name, family in families.items()
        if name.startswith("kakeya_")
    }
    declared = documented(service)
    assert shown == {(each.name, each.kind, each.meaning) for each in declared}
    labels = {each.name.removesuffix("_total"): {*each.labels} for each in declared}
    for name in labels:
        for sample in families[name].samples:
            assert sample.labels.keys() - {"le"} == labels[name], sample.name
    assert "process_cpu_seconds" in families
    assert "python_gc_collections" in families


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: apt-get install prometheus)")
@pytest.mark.parametrize("service", SERVICES)
def test_promtool_finds_nothing_to_say(measured: Runtime, http: HttpStack, service: str) -> None:
    assert PROMTOOL is not None
    text = scrape(shown_by(measured, http, service)).text
    checked = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_open_metrics_is_spoken_too(measured: Runtime, http: HttpStack) -> None:
    for service in SERVICES:
        seen = scrape(shown_by(measured, http, service), OPEN_METRICS)
        assert seen.text.endswith("# EOF\n")
        assert any(family.unit == "seconds" for family in seen.families.values())
