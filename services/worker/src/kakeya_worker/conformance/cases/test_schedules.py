"""Whatever several sessions do at once, each is what the exact reference makes of its own tokens, to the bit."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from kakeya_shared import plugins
from kakeya_worker.conformance.exact_reference import ExactReference
from kakeya_worker.conformance.schedules.schedule import GEOMETRY, NUM_LANES, Schedule, schedules
from kakeya_worker.conformance.schedules.schedule_run import ScheduleRunner
from kakeya_worker.conformance.tools import drafts
from kakeya_worker.conformance.tools.checkpoints import VARIANTS, Variant
from kakeya_worker.conformance.tools.drafts import Record
from kakeya_worker.conformance.tools.subject import Case, Subject, declaration
from kakeya_worker.engine.seams.proposer import NewProposer
from kakeya_worker.engine.speculation.draft_model import DraftModel
from kakeya_worker.engine.speculation.names import NONE
from kakeya_worker.engine.speculation.proposers import GROUP, Proposers, load

VARIANT = min(VARIANTS, key=lambda variant: variant.config["num_hidden_layers"])  # the fastest; bits are another test's
_NUM_LAYERS = VARIANT.config["num_hidden_layers"]
_FEWER_LAYERS = replace(VARIANT, config={**VARIANT.config, "num_hidden_layers": _NUM_LAYERS - 1})


def _each_session_its_own(make: Callable[[], NewProposer]) -> Callable[[Subject, Path], Proposers]:
    return lambda subject, directory: drafts.proposers(make())


def _of_model(variant: Variant) -> Callable[[Subject, Path], Proposers]:
    def proposers(subject: Subject, directory: Path) -> Proposers:
        verifier = subject.load(variant.write(directory / "draft-model"))
        return drafts.proposers_of_model(DraftModel(verifier, GEOMETRY, NUM_LANES, variant.config["vocab_size"]))

    return proposers


PROPOSERS: Mapping[str, Callable[[Subject, Path], Proposers]] = {
    **{name: _each_session_its_own(partial(load, name)) for name in plugins.names(GROUP) if name != NONE},
    "right": _each_session_its_own(Record),
    "often-wrong": _each_session_its_own(lambda: Record(wrong_every=3)),
    "lying": _each_session_its_own(lambda: drafts.Lying),
    "failing": _each_session_its_own(lambda: drafts.Failing),
    "draft-model": _of_model(VARIANT),
    "draft-model-of-fewer-layers": _of_model(_FEWER_LAYERS),
}
"""All that are installed, those that prove something, and models: the same as the one that is drafted for, another."""

_schedules = given(schedule=schedules(VARIANT.config["vocab_size"]))
_common = settings(
    deadline=None,
    database=None,
    print_blob=True,  # replays a failure: pass it to hypothesis.reproduce_failure
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)


def _subject(plugin: str, directory: Path, kv_dtype: str = "bfloat16") -> Subject:
    exact = {mode.kv_dtype: mode for mode in declaration(plugin).modes if mode.tolerance == "exact"}
    if kv_dtype not in exact or VARIANT.family not in declaration(plugin).families:
        pytest.skip(f"{plugin} declares no exact {VARIANT.family} with a KV of {kv_dtype}")
    return Subject(Case(plugin, VARIANT, exact[kv_dtype]), VARIANT.write(directory / "checkpoint"))


def _runner(subject: Subject, proposers: Proposers | None = None) -> ScheduleRunner:
    return ScheduleRunner(subject.load(), ExactReference(subject.directory, subject.case.mode.kv_dtype), proposers)


@pytest.fixture(params=["bfloat16", "int8"])
def runner(plugin: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ScheduleRunner]:
    runner = _runner(_subject(plugin, tmp_path, request.param))
    yield runner
    runner.shut_down()


@pytest.fixture(params=PROPOSERS)
def drafting_runner(plugin: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ScheduleRunner]:
    subject = _subject(plugin, tmp_path)
    runner = _runner(subject, PROPOSERS[request.param](subject, tmp_path))
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
