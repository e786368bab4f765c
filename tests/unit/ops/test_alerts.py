"""Alerts, by Prometheus's own promtool: each fires where it should, and stops; each has its page."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "ops" / "prometheus" / "alerts.yaml"
RUNBOOKS = ROOT / "ops" / "runbooks"
HEADINGS = ["What it means", "What to look at", "What to do"]
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)"
)


@dataclass(frozen=True)
class Case:
    """What is scraped every 15 s, in promtool's notation, and when the alert must fire and must not."""

    series: dict[str, str]
    fires: str
    is_quiet: tuple[str, ...]


def counter(*, quiet: int, rising: int, after: int, step: int = 1) -> str:
    """A counter that stands still for some scrapes, rises for some, and stands still again."""
    top = rising * step
    return f"0x{quiet} {step}+{step}x{rising - 1} {top}x{after}"


def histogram(name: str, below: str, above: str, labels: str = "") -> dict[str, str]:
    """Fast for ten minutes, then slow for twenty, then fast again, as its buckets below a bound and all of them."""
    fast, slow, again = 40, 80, 200
    all_of = f"0+10x{fast + slow + again}"
    fast_ones = f"0+10x{fast} {fast * 10}x{slow} {fast * 10}+10x{again}"
    return {
        f'{name}_bucket{{le="{below}"{labels}}}': fast_ones,
        f'{name}_bucket{{le="{above}"{labels}}}': all_of,
        f'{name}_bucket{{le="+Inf"{labels}}}': all_of,
    }


CASES = {
    "KakeyaWorkerLost": Case(
        {"kakeya_router_lost_workers_total": counter(quiet=20, rising=1, after=120)}, "6m", ("4m", "30m")
    ),
    "KakeyaNoWorker": Case({'kakeya_router_workers{state="ready"}': "1x20 0x40 1x40"}, "8m", ("5m30s", "18m")),
    "KakeyaSessionsLost": Case(
        {"kakeya_router_lost_sessions_total": counter(quiet=20, rising=2, after=400)}, "10m", ("4m", "90m")
    ),
    "KakeyaInvariantViolated": Case(
        {'kakeya_worker_invariant_violations_total{invariant="inv1"}': counter(quiet=20, rising=1, after=400)},
        "6m",
        ("4m", "90m"),
    ),
    "KakeyaSlowRecovery": Case(histogram("kakeya_router_recovery_seconds", "5", "30"), "25m", ("8m", "60m")),
    "KakeyaCallsQueue": Case({"kakeya_queued_requests": "0x20 3x60 0x40"}, "12m", ("8m", "24m")),
    "KakeyaCallsRefused": Case(
        {'kakeya_router_calls_total{method="m",reason="NO_CAPACITY"}': counter(quiet=20, rising=40, after=80)},
        "12m",
        ("5m", "30m"),
    ),
    "KakeyaParksForRoom": Case(
        {'kakeya_router_park_seconds_count{reason="room"}': counter(quiet=20, rising=100, after=80, step=30)},
        "22m",
        ("9m", "45m"),
    ),
    "KakeyaSlowFirstToken": Case(
        histogram("kakeya_router_time_to_first_token_seconds", "1", "10"), "28m", ("9m", "70m")
    ),
    "KakeyaRedisDown": Case({"kakeya_router_redis_up": "1x20 0x20 1x20"}, "7m", ("5m15s", "12m")),
    "KakeyaSnapshotsFail": Case(
        {'kakeya_router_snapshot_seconds_count{outcome="failed"}': counter(quiet=20, rising=60, after=120)},
        "14m",
        ("8m", "45m"),
    ),
    "KakeyaJournalLags": Case(histogram("kakeya_router_journal_lag_seconds", "0.25", "2.5"), "25m", ("9m", "60m")),
    "KakeyaHeartbeatsLate": Case(
        {'kakeya_router_worker_heartbeat_age_seconds{pool="p",worker="w"}': "4x20 13x20 4x20"}, "7m", ("5m", "12m")
    ),
    "KakeyaInternalErrors": Case(
        {'kakeya_router_calls_total{method="m",reason="INTERNAL"}': counter(quiet=20, rising=20, after=80)},
        "8m",
        ("4m", "25m"),
    ),
    "KakeyaTargetDown": Case({'up{job="kakeya-router",instance="a"}': "1x20 0x20 1x20"}, "8m", ("5m30s", "12m")),
}


def rules() -> dict[str, Any]:
    """By the alert's name."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def test_every_alert_has_a_case_and_a_page() -> None:
    assert set(rules()) == set(CASES) == {page.stem for page in RUNBOOKS.glob("Kakeya*.md")}
    for name, rule in rules().items():
        assert rule["annotations"]["runbook"] == f"ops/runbooks/{name}.md"
        assert rule["labels"]["severity"] in ("critical", "warning")


@pytest.mark.parametrize("name", CASES)
def test_a_page_says_what_to_do(name: str) -> None:
    text = (RUNBOOKS / f"{name}.md").read_text()
    assert re.findall(r"^# (.+)$", text, re.M) == [name]
    assert re.findall(r"^## (.+)$", text, re.M) == HEADINGS
    assert all(len(part.strip()) > 60 for part in re.split(r"^## .+$", text, flags=re.M)[1:])


@pytest.mark.parametrize("name", CASES)
def test_a_page_names_flags_that_there_are(name: str) -> None:
    flags = set(re.findall(r"`(--[a-z-]+)", (RUNBOOKS / f"{name}.md").read_text()))
    assert flags <= set(re.findall(r"`(--[a-z-]+)`", (ROOT / "docs" / "configuration.md").read_text()))


@needs_promtool
def test_the_rules_are_prometheuss() -> None:
    done = subprocess.run(["promtool", "check", "rules", str(RULES)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{len(CASES)} rules found" in done.stdout


@needs_promtool
def test_each_alert_fires_and_stops(tmp_path: Path) -> None:
    tests = [
        {
            "name": name,
            "interval": "15s",
            "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
                    "eval_time": time,
                    "exp_samples": [{"labels": "{}", "value": 1}] if time == case.fires else [],
                }
                for time in (case.fires, *case.is_quiet)
            ],
        }
        for name, case in CASES.items()
    ]
    document = {"rule_files": [str(RULES)], "evaluation_interval": "15s", "tests": tests}
    (tmp_path / "alerts_test.yaml").write_text(yaml.safe_dump(document))
    command = ["promtool", "test", "rules", str(tmp_path / "alerts_test.yaml")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
