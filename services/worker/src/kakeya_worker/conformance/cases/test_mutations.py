"""The suite can fail: whatever breaks the law turns its own measurement red, in every family and mode.

In a float mode the measurement is the distance from the reference, and red is ten times what is tolerated. In an
exact mode it is whether all ways to run a history lead to the bits of the unbroken verifier.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest

from kakeya_worker.conformance.declaration import NUMERIC_MUTATIONS
from kakeya_worker.conformance.tools.driving import open_session
from kakeya_worker.conformance.tools.measure import deviation
from kakeya_worker.conformance.tools.mutations import MUTATIONS
from kakeya_worker.conformance.tools.subject import Subject, declaration
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.seams.verifier import Verifier

SINK, WINDOW = 4, 40
NUM_TOKENS = 168  # 3.8 x (S + W)
RED = 10.0  # tolerances


@dataclass(frozen=True)
class Way:
    """One way to run a history.

    Attributes:
        row_size: tokens a row.
        chunk: C, on which the ring's slack depends.
        num_companions: other sessions that bring a token to each step.
    """

    row_size: int
    chunk: int
    num_companions: int = 0

    @property
    def geometry(self) -> LaneGeometry:
        return LaneGeometry(SINK, WINDOW, self.chunk)


PLAIN = Way(row_size=7, chunk=32)
OTHER_WAYS = (Way(28, 32, num_companions=3), Way(56, 128), Way(1, 16))

Load = Callable[[LaneGeometry, int], Verifier]


def _truly(row: Row) -> Row:
    return row


def distance(subject: Subject, load: Load, told: Callable[[Row], Row] = _truly) -> float:
    """How far the worst logits of a history are from the law, in tolerances."""
    session = open_session(load(PLAIN.geometry, 1), PLAIN.geometry, told=told)
    history = subject.variant.history(NUM_TOKENS)
    expected = subject.law(history, SINK, WINDOW)
    return max(
        deviation(subject.tolerance, session.append(history[start : start + 7]), expected[start + 6])
        for start in range(0, NUM_TOKENS, 7)
    )


def bits(subject: Subject, load: Load, way: Way = PLAIN, told: Callable[[Row], Row] = _truly) -> str:
    """A digest of the logits at each third of a history."""
    verifier = load(way.geometry, 1 + way.num_companions)
    session, *company = (open_session(verifier, way.geometry, lane) for lane in range(1 + way.num_companions))
    session.told = told
    digest = hashlib.sha256()
    history = subject.variant.history(NUM_TOKENS)
    for start in range(0, NUM_TOKENS, way.row_size):
        session.step(history[start : start + way.row_size], company)
        if session.lane.length % (NUM_TOKENS // 3) == 0:
            digest.update(session.logits().tobytes())
    return digest.hexdigest()


def is_red(subject: Subject, load: Load, unbroken: str | None, told: Callable[[Row], Row] = _truly) -> bool:
    """Whether the measurement shows that something is broken; in an exact mode against the unbroken bits."""
    if unbroken is None:
        return distance(subject, load, told) > RED
    return any(bits(subject, load, way, told) != unbroken for way in (PLAIN, *OTHER_WAYS))


@cache
def unbroken_bits(subject: Subject) -> str | None:
    return bits(subject, subject.verifier) if subject.tolerance == "exact" else None


def test_unbroken_it_is_green(subject: Subject) -> None:
    if subject.tolerance == "exact":
        assert not is_red(subject, subject.verifier, unbroken_bits(subject))
    else:
        assert distance(subject, subject.verifier) <= 1


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_lie_about_a_row_shows(subject: Subject, name: str) -> None:
    assert is_red(subject, subject.verifier, unbroken_bits(subject), MUTATIONS[name])


def test_every_mutation_of_the_plugin_shows(broken: tuple[Subject, str]) -> None:
    subject, name = broken
    unbroken = unbroken_bits(subject)
    with declaration(subject.case.plugin).mutations[name].broken():
        assert is_red(subject, subject.fresh, unbroken)
    if unbroken is None:
        assert distance(subject, subject.fresh) <= 1, "the plugin is not whole again"
    else:
        assert bits(subject, subject.fresh) == unbroken, "the plugin is not whole again"


def test_an_exact_plugin_brings_every_numeric_mutation(plugin: str) -> None:
    """For each of its exact modes; K and V of float32 need no rounding."""
    declared = declaration(plugin)
    exact_modes = [mode for mode in declared.modes if mode.tolerance == "exact"]
    for name in NUMERIC_MUTATIONS:
        needed = {mode for mode in exact_modes if mode.kv_dtype != "float32" or name != "unrounded-kv"}
        brought = set(declared.mutations[name].modes) if name in declared.mutations else set()
        assert needed <= brought, f"{name} is missing for {needed - brought}"
