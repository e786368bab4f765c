"""Whatever several sessions do at once, each is what the exact reference makes of its own tokens, to the bit."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from kakeya_worker.conformance.exact_reference import ExactReference
from kakeya_worker.conformance.schedules.schedule import Schedule, schedules
from kakeya_worker.conformance.schedules.schedule_run import ScheduleRunner
from kakeya_worker.conformance.tools.checkpoints import VARIANTS
from kakeya_worker.conformance.tools.subject import Case, Subject, declaration

VARIANT = min(VARIANTS, key=lambda variant: variant.config["num_hidden_layers"])  # the fastest; bits are another test's

_schedules = given(schedule=schedules(VARIANT.config["vocab_size"]))
_common = settings(
    deadline=None,
    database=None,
    print_blob=True,  # replays a failure: pass it to hypothesis.reproduce_failure
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def runner(plugin: str, tmp_path: Path) -> Iterator[ScheduleRunner]:
    exact = [mode for mode in declaration(plugin).modes if mode.tolerance == "exact"]
    if not exact or VARIANT.family not in declaration(plugin).families:
        pytest.skip(f"{plugin} declares no exact {VARIANT.family}")
    subject = Subject(Case(plugin, VARIANT, exact[0]), VARIANT.write(tmp_path / "checkpoint"))
    runner = ScheduleRunner(subject.load(), ExactReference(subject.directory, exact[0].kv_dtype))
    yield runner
    runner.shut_down()


@settings(_common, max_examples=60, derandomize=True)
@_schedules
def test_a_few_schedules(runner: ScheduleRunner, schedule: Schedule) -> None:
    runner.run(schedule)


@pytest.mark.heavy
@pytest.mark.parametrize("share", range(10))
@settings(_common, max_examples=200)
@_schedules
def test_two_thousand_schedules(runner: ScheduleRunner, share: int, schedule: Schedule) -> None:
    """Others in each share, and in each run."""
    runner.run(schedule)
