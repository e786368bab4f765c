"""How many drafts the sessions of a step have from a model: by what they and the model's passes take."""

from collections.abc import Sequence
from typing import Any

import pytest

from kakeya_worker.engine.costs.step_costs import StepCosts
from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.lanes.operation import Generate
from kakeya_worker.engine.sampling.sampling import Sampling
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, sink_window
from kakeya_worker.engine.speculation.draft_model import DraftModel
from kakeya_worker.engine.speculation.proposers import Proposers
from kakeya_worker.engine.steps.drafting import DraftsDone, depths_of, draft
from kakeya_worker.torch_backend import TorchVerifier

GEOMETRY = LaneGeometry(sink=4, window=60, chunk=32)
COSTS = StepCosts(step_seconds=0.1, token_seconds=0.01, slot_seconds=0.0)


@pytest.fixture
def proposers(verifier: TorchVerifier) -> Proposers:
    return Proposers("none", draft_model=DraftModel(verifier, GEOMETRY, 8, 1024), late_seconds=30.0)


def price(proposers: Proposers, step_seconds: float) -> None:
    assert proposers.draft_model is not None
    proposers.draft_model._measures.costs = StepCosts(step_seconds, 0.0, 0.0)


def generate(proposers: Proposers, index: int, speculation: str, *, right: float = 0.8, **asked: Any) -> Generate:
    """Whose drafts were right so often."""
    made = Generate(
        str(index),
        1,
        0,
        max_tokens=100,
        eos_token_ids=frozenset({3}),
        sampling=asked.pop("sampling", Sampling()),
        on_token=lambda token_id, detail: None,
        **asked,
    )
    lane = Lane(GEOMETRY, index, sink_window(SessionOptions(), GEOMETRY))
    made.begin(lane, f"tenant {index % 2}")
    made.drafter = proposers.drafter(GEOMETRY, 1024, (), speculation, index)
    if made.drafter is not None:
        made.drafter.acceptance._trials, made.drafter.acceptance._hits = 1000.0, 1000.0 * right
        made.drafter.acceptance.tokens_a_step = 1.0
    return made


def depths(generates: Sequence[Generate]) -> list[int]:
    return depths_of(generates, 32, COSTS, COSTS.seconds(len(generates), 0), 100)


def test_fewer_are_drafted_the_more_a_pass_takes(proposers: Proposers) -> None:
    found = []
    for step_seconds in (0.0, 0.01, 0.05, 0.07, 0.08, 0.1):
        price(proposers, step_seconds)
        found += depths([generate(proposers, 0, "draft-model")])
    assert found == sorted(found, reverse=True)
    assert found[0] > found[1] > found[2] > found[3] > found[4] == found[5] == 0


def test_several_pay_for_a_pass_together(proposers: Proposers) -> None:
    """It would pay for none of the four, had each to have one of its own."""
    price(proposers, 0.05)
    assert min(depths([generate(proposers, index, "draft-model") for index in range(4)])) >= 1


def test_it_is_reckoned_again_without_those_for_whom_it_does_not_pay(proposers: Proposers) -> None:
    """Two share a pass that four would have paid for."""
    good = [generate(proposers, index, "draft-model") for index in range(2)]
    bad = [generate(proposers, index, "draft-model", right=0.05) for index in range(2, 4)]
    for each in bad:
        assert each.drafter is not None
        each.drafter.acceptance.tokens_a_step = 3.0  # so that it does not mind to wait
    price(proposers, 0.05)
    assert depths([*good, *bad]) == [0, 0, 0, 0]
    price(proposers, 0.02)
    found = depths([*good, *bad])
    assert min(found[:2]) > 0
    assert found[2:] == [0, 0]


def test_others_do_not_wait_for_it(proposers: Proposers) -> None:
    """One beside it that drafts nothing would wait for each of its passes."""
    price(proposers, 0.01)
    pair = [generate(proposers, 0, "draft-model"), generate(proposers, 1, "none")]
    assert depths(pair) == [0, 0]
    assert depths(pair[:1]) != [0]


def test_ngram_does_not_pay_for_it(proposers: Proposers) -> None:
    price(proposers, 10.0)
    found = depths([generate(proposers, 0, "ngram"), generate(proposers, 1, "ngram")])
    assert min(found) > 0


def test_its_seconds_are_those_of_the_tenants_that_it_drafts_for(proposers: Proposers) -> None:
    of_model = [generate(proposers, index, "draft-model") for index in range(3)]
    chosen = dict.fromkeys((*of_model, generate(proposers, 3, "ngram"), generate(proposers, 5, "none")), 5)
    drafted = draft(chosen, lambda generates: [2, 4, 2, 3, 0], proposers)
    assert [len(drafted.tokens[each]) for each in of_model] == [2, 4, 2]
    assert set(drafted.seconds) == {"tenant 0", "tenant 1"}
    assert drafted.seconds["tenant 0"] == pytest.approx(drafted.seconds["tenant 1"])
    done = DraftsDone.of({of_model[0]: 2}, COSTS, drafted.seconds)
    assert done.seconds["tenant 0"] == pytest.approx(drafted.seconds["tenant 0"] + 0.02)
    assert done.seconds["tenant 1"] == drafted.seconds["tenant 1"]


def test_nothing_is_asked_where_nothing_pays(proposers: Proposers) -> None:
    drafted = draft({generate(proposers, 0, "draft-model"): 5}, lambda generates: [0], proposers)
    assert (drafted.tokens, dict(drafted.seconds)) == ({}, {})
    assert draft({generate(proposers, 0, "none"): 5}, lambda generates: [0], proposers) == drafted
