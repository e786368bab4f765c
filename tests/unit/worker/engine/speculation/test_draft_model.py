"""A draft model: what it takes, what it is asked for at once, where it differs from what it drafts for."""

from dataclasses import replace

import pytest

from kakeya_worker.engine.costs.step_costs import StepCosts
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.engine.speculation.draft_model import DraftModel
from kakeya_worker.engine.speculation.drafter import Drafter
from kakeya_worker.engine.speculation.proposers import Proposers, Wish
from kakeya_worker.torch_backend import TorchVerifier

GEOMETRY, VOCAB_SIZE = LaneGeometry(sink=4, window=60, chunk=32), 1024
COSTS = StepCosts(step_seconds=0.010, token_seconds=0.001, slot_seconds=0.0)


@pytest.fixture
def model(verifier: TorchVerifier) -> DraftModel:
    return DraftModel(verifier, GEOMETRY, 3, VOCAB_SIZE)


@pytest.fixture
def priced(model: DraftModel) -> DraftModel:
    model._measures.costs = COSTS
    return model


def drafter_of(model: DraftModel, lane: int = 0) -> Drafter:
    found = Proposers("none", draft_model=model).drafter(GEOMETRY, VOCAB_SIZE, (), "draft-model", lane)
    assert found is not None
    return found


def test_its_passes_are_measured(model: DraftModel) -> None:
    assert model.costs.step_seconds == 0.0
    model.fit_costs()
    assert model.costs.seconds(1, 1) > 0.0
    before = model._measures._num_steps
    model.session(0).propose(5, 3)
    assert model._measures._num_steps == before + 3


def test_a_session_alone_is_drafted_the_likeliest_tokens(model: DraftModel) -> None:
    first, second = model.session(0), model.session(1)
    for proposer in (first, second):
        proposer.restart(list(range(20)))
    long = list(first.propose(7, 10))
    assert len(set(long)) > 3
    assert list(second.propose(7, 4)) == long[:4]
    second.extend([7, *long[:4]])
    assert list(second.propose(long[4], 5)) == long[5:]
    assert len(list(first.propose(7, 100))) == first.max_tokens


def test_several_share_the_price_of_a_pass(priced: DraftModel) -> None:
    drafter = drafter_of(priced)
    assert drafter.draft_seconds(1) == pytest.approx(0.011)
    assert drafter.draft_seconds(5) == pytest.approx(0.003)


def test_to_be_behind_has_its_price(priced: DraftModel) -> None:
    """Also what the proposer was not told yet, and no more than a lane keeps."""
    drafter = drafter_of(priced)
    drafter.hear(drafter.take_news())
    drafter.news.token_ids = [1] * 32
    assert drafter.draft_seconds(1) == pytest.approx(0.011 + 0.001 / 2)
    drafter.hear(drafter.take_news())
    assert drafter.draft_seconds(1) == pytest.approx(0.011 + 0.001 / 2)
    drafter.news.token_ids = [1] * 1000
    assert drafter.draft_seconds(1) == pytest.approx(0.011 + 0.001)


@pytest.mark.parametrize(("num_tokens", "num_caught_up"), [(1, 8), (2, 16), (15, 61 - 31)])
def test_it_catches_up_for_as_long_as_drafts_would_take(
    priced: DraftModel, num_tokens: int, num_caught_up: int
) -> None:
    """At most until one row takes in what is left."""
    proposer = priced.session(0)
    proposer.extend([1] * 61)
    assert proposer.propose(7, num_tokens) == []
    assert proposer.num_behind == 61 - max(num_caught_up, 32 if num_tokens == 15 else 0)


def test_a_step_waits_for_what_it_is_expected_to_take(priced: DraftModel) -> None:
    assert priced.patient_seconds([1, 2]) == 1.0
    priced._measures.costs = StepCosts(1.0, 0.1, 0.0)
    assert priced.patient_seconds([1, 2]) == pytest.approx(8 * (2.0 + 0.3))


def test_tokens_that_it_does_not_know_are_others_to_it(verifier: TorchVerifier) -> None:
    model = DraftModel(verifier, GEOMETRY, 3, VOCAB_SIZE + 64)
    proposer = model.session(0)
    proposer.restart([VOCAB_SIZE + 63, 5])
    proposer.extend([VOCAB_SIZE, 6])
    drafts = list(proposer.propose(VOCAB_SIZE + 1, 4))
    assert len(drafts) == 4
    assert max(drafts) < VOCAB_SIZE


def test_it_drafts_no_tokens_that_the_other_has_not(verifier: TorchVerifier) -> None:
    drafts = list(DraftModel(verifier, GEOMETRY, 3, 3).session(0).propose(1, 12))
    assert len(drafts) == 12
    assert max(drafts) < 3


def test_its_window_is_no_wider_than_its_positions(verifier: TorchVerifier) -> None:
    verifier.facts = replace(verifier.facts, max_positions=24)
    assert DraftModel(verifier, GEOMETRY, 3, VOCAB_SIZE).geometry == replace(GEOMETRY, window=20)
    verifier.facts = replace(verifier.facts, max_positions=4)
    with pytest.raises(ModelRefused, match="4 positions: 4 sinks leave it no window"):
        DraftModel(verifier, GEOMETRY, 3, VOCAB_SIZE)


def test_it_keeps_no_more_of_a_longer_history(model: DraftModel) -> None:
    proposer = model.session(0)
    for number in range(100):
        proposer.extend(range(number, number + 1000))
        proposer.propose(1, 4)
        assert proposer.num_behind <= GEOMETRY.capacity
    assert proposer.memory_bytes == model.session(1).memory_bytes == model.lane_bytes


def test_one_that_was_given_up_is_not_asked_beside_others(model: DraftModel) -> None:
    proposers = Proposers("none", draft_model=model, late_seconds=30.0)
    drafters = [proposers.drafter(GEOMETRY, VOCAB_SIZE, (1, 2), "draft-model", lane) for lane in range(2)]
    wishes = [Wish(drafter, 7, 3) for drafter in drafters if drafter is not None]
    wishes[0].drafter.give_up()
    assert [len(found) for found in proposers.propose(wishes)] == [0, 3]
    assert (wishes[0].drafter.draft_seconds(1), wishes[0].drafter.memory_bytes) == (0.0, 0)
    proposers.close()
