"""Whatever several sessions do at once, each is what the exact reference makes of its own tokens, to the bit."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from kakeya_shared import plugins
from kakeya_worker.conformance.exact_reference import ExactReference
from kakeya_worker.conformance.schedules.schedule import Schedule, schedules
from kakeya_worker.conformance.schedules.schedule_run import ScheduleRunner
from kakeya_worker.conformance.tools import drafts
from kakeya_worker.conformance.tools.checkpoints import VARIANTS
from kakeya_worker.conformance.tools.drafts import Record
from kakeya_worker.conformance.tools.subject import Case, Subject, declaration
from kakeya_worker.engine.seams.proposer import NewProposer
from kakeya_worker.engine.speculation.proposers import GROUP, NONE, Proposers, load

VARIANT = min(VARIANTS, key=lambda variant: variant.config["num_hidden_layers"])  # the fastest; bits are another test's

PROPOSERS: Mapping[str, Callable[[], NewProposer]] = {
    **{name: partial(load, name) for name in plugins.names(GROUP) if name != NONE},
    "right": Record,
    "often-wrong": lambda: Record(wrong_every=3),
    "lying": lambda: drafts.Lying,
    "failing": lambda: drafts.Failing,
}
"""All that are installed, and those that prove something."""

_schedules = given(schedule=schedules(VARIANT.config["vocab_size"]))
_common = settings(
    deadline=None,
    database=None,
    print_blob=True,  # replays a failure: pass it to hypothesis.reproduce_failure
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)


def _runner(plugin: str, directory: Path, proposers: Proposers | None = None) -> ScheduleRunner:
    exact = [mode for mode in declaration(plugin).modes if mode.tolerance == "exact"]
    if not exact or VARIANT.family not in declaration(plugin).families:
        pytest.skip(f"{plugin} declares no exact {VARIANT.family}")
    subject = Subject(Case(plugin, VARIANT, exact[0]), VARIANT.write(directory / "checkpoint"))
    return ScheduleRunner(subject.load(), ExactReference(subject.directory, exact[0].kv_dtype), proposers)


@pytest.fixture
def runner(plugin: str, tmp_path: Path) -> Iterator[ScheduleRunner]:
    runner = _runner(plugin, tmp_path)
    yield runner
    runner.shut_down()


@pytest.fixture(params=PROPOSERS)
def drafting_runner(plugin: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ScheduleRunner]:
    runner = _runner(plugin, tmp_path, drafts.proposers(PROPOSERS[request.param]()))
    yield runner
    runner.shut_down()


@settings(_common, max_examples=60, derandomize=True)
@_schedules
def test_a_few_schedules(runner: ScheduleRunner, schedule: Schedule) -> None:
    runner.run(schedule)


@settings(_common, max_examples=20, derandomize=True)
@_schedules
def test_a_few_schedules_with_drafts(drafting_runner: ScheduleRunner, schedule: Schedule) -> None:
    """Twice: what comes is known then, by who remembers it."""
    drafting_runner.run(schedule)
    drafting_runner.run(schedule)


@pytest.mark.heavy
@settings(_common, max_examples=200)
@_schedules
def test_a_thousand_schedules_with_drafts(drafting_runner: ScheduleRunner, schedule: Schedule) -> None:
    drafting_runner.run(schedule)
    drafting_runner.run(schedule)


@pytest.mark.heavy
@pytest.mark.parametrize("share", range(10))
@settings(_common, max_examples=200)
@_schedules
def test_two_thousand_schedules(runner: ScheduleRunner, share: int, schedule: Schedule) -> None:
    """Others in each share, and in each run."""
    runner.run(schedule)
