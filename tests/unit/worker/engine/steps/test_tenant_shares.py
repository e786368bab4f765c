"""Tenants on one worker: each gets its share of what it would do alone, and cheap company is not thrown away."""

import random
from functools import cache
from itertools import pairwise

import pytest

from kakeya_worker.engine.steps.tenant_shares import (
    FORGET_SECONDS,
    MAX_LAG_SECONDS,
    MAX_MEASURES,
    NUM_SAMPLES,
    PROBE_STEPS,
    Load,
    TenantShares,
)
from tests.unit.worker.step_simulation import STEP_TOKENS, Cost, Simulation, Tenant, by_slots, linear, noisy, rates

# Seconds of a step: a fixed part and one a token, from memory-bound to compute-bound.
COSTS = {
    "memory": (0.1, 0.0001),
    "mostly-memory": (0.1, 0.002),
    "both": (0.1, 0.01),
    "mostly-compute": (0.01, 0.01),
    "compute": (0.0001, 0.01),
}
MODEST = Tenant("modest", num_generating=1)
GREEDY = [
    Tenant("greedy", num_generating=1),
    Tenant("greedy", num_generating=4),
    Tenant("greedy", num_generating=16),
    Tenant("greedy", num_appending=1),
    Tenant("greedy", num_appending=16),
    Tenant("greedy", num_generating=16, num_appending=16),
    Tenant("greedy", num_conversing=16),
    Tenant("greedy", num_coming=4),
]
LEAST_PART = 1 / 1.5  # of its share that a tenant must get


def _seconds(parts: tuple[float, float], num_steps: int = 25) -> float:
    """Of so many full steps."""
    return num_steps * (parts[0] + parts[1] * STEP_TOKENS)


def _parts(cost: Cost, tenants: list[Tenant], seconds: float) -> dict[str, float]:
    """What each tenant got of its share, the share being an equal part of what it does alone."""
    alone = {tenant.name: _alone(cost, tenant, seconds) for tenant in tenants}
    together = rates(cost, tenants, seconds)
    return {name: together[name] / (alone[name] / len(tenants)) for name in alone}


@cache
def _alone(cost: Cost, tenant: Tenant, seconds: float) -> float:
    """What it gets with nobody beside it, in tokens a second."""
    return rates(cost, [tenant], seconds)[tenant.name]


@pytest.mark.parametrize("greedy", GREEDY, ids=str)
@pytest.mark.parametrize("name", COSTS)
def test_a_modest_tenant_beside_a_greedy_one(name: str, greedy: Tenant) -> None:
    parts = _parts(linear(*COSTS[name]), [MODEST, greedy], _seconds(COSTS[name]))
    assert min(parts.values()) > LEAST_PART, parts


def test_without_shares_a_greedy_tenant_takes_it_all() -> None:
    """What the test above would say if nobody knew of tenants."""
    seconds = _seconds(COSTS["compute"])
    alone = _alone(linear(*COSTS["compute"]), MODEST, seconds)
    unfair = rates(linear(*COSTS["compute"]), [MODEST, GREEDY[4]], seconds, is_fair=False)
    assert unfair["modest"] < alone / 50


@pytest.mark.parametrize("greedy", GREEDY, ids=str)
def test_company_that_costs_little_is_kept(greedy: Tenant) -> None:
    cost, seconds = linear(*COSTS["memory"]), _seconds(COSTS["memory"], num_steps=300)
    fair = rates(cost, [MODEST, greedy], seconds)
    unfair = rates(cost, [MODEST, greedy], seconds, is_fair=False)
    assert sum(fair.values()) > 0.9 * sum(unfair.values())
    assert fair["modest"] > 0.9 * unfair["modest"]


def test_eight_equal_tenants_of_a_memory_bound_model_go_as_fast_as_eight_sessions_of_one() -> None:
    tenants = [Tenant(str(number), num_generating=1) for number in range(8)]
    cost, seconds = linear(*COSTS["memory"]), _seconds(COSTS["memory"], num_steps=300)
    fair = rates(cost, tenants, seconds)
    unfair = rates(cost, tenants, seconds, is_fair=False)
    assert min(fair.values()) > 0.9 * max(unfair.values())


@pytest.mark.parametrize("num_tenants", [64, 128, 256])
def test_many_tenants_do_not_wait_until_each_is_measured(num_tenants: int) -> None:
    cost, num_steps = linear(0.05, 0.0001), 100
    tenants = [Tenant(str(number), num_generating=1) for number in range(num_tenants)]
    fair, unfair = Simulation(cost), Simulation(cost, is_fair=False)
    latest, longest_gap = dict.fromkeys((tenant.name for tenant in tenants), -1), 0
    for simulation in (fair, unfair):
        simulation.enter(*tenants)
    for number in range(num_steps):
        unfair.step()
        for generate in fair.step().generates:
            longest_gap = max(longest_gap, number - latest[generate.tenant])
            latest[generate.tenant] = number
    assert _rate(fair) >= 0.8 * _rate(unfair)
    assert max(longest_gap, num_steps - min(latest.values())) <= 4


def test_many_tenants_with_many_loads_are_hardly_slower_than_one() -> None:
    kinds = [
        Tenant(str(n), num_generating=n % 3, num_appending=n % 2, num_conversing=1 + n % 5, num_coming=n % 4)
        for n in range(64)
    ]
    simulations = [Simulation(linear(0.05, 0.0001), is_fair) for is_fair in (True, False)]
    for simulation in simulations:
        simulation.enter(*kinds)
        for _ in range(200):
            simulation.step()
    assert _rate(simulations[0]) >= 0.8 * _rate(simulations[1])


def _rate(simulation: Simulation) -> float:
    return sum(simulation.num_tokens.values()) / simulation.seconds


@pytest.mark.parametrize("name", COSTS)
def test_loads_that_differ_within_a_size(name: str) -> None:
    """One measure serves both: what eight tokens took says what fifteen take."""
    tenants = [Tenant("eight", num_generating=8), Tenant("fifteen", num_generating=15)]
    parts = _parts(linear(*COSTS[name]), tenants, _seconds(COSTS[name]))
    assert min(parts.values()) > 0.8, parts


@pytest.mark.parametrize("num_narrow", [1, 4])
def test_who_sees_little_does_not_pay_for_who_sees_much(num_narrow: int) -> None:
    """As many tokens, and sixty times the attention."""
    tenants = [Tenant("narrow", num_appending=num_narrow), Tenant("wide", num_full=num_narrow)]
    parts = _parts(by_slots(0.01, 0.000_01), tenants, seconds=200.0)
    assert min(parts.values()) > LEAST_PART, parts


@pytest.mark.parametrize("name", COSTS)
def test_three_tenants(name: str) -> None:
    tenants = [MODEST, Tenant("appending", num_appending=4), Tenant("conversing", num_conversing=5)]
    parts = _parts(noisy(linear(*COSTS[name]), seed=1), tenants, _seconds(COSTS[name]))
    assert min(parts.values()) > LEAST_PART, parts


@pytest.mark.parametrize("seed", range(16))
def test_any_tenants_and_any_costs(seed: int) -> None:
    chance = random.Random(seed)
    costs = chance.choice([0.0, 0.001, 0.1]) + 1e-4, chance.choice([1e-5, 1e-3, 1e-2])
    tenants = [
        Tenant(str(number), chance.choice([0, 1, 2, 9]), chance.choice([0, 0, 1, 6]), chance.choice([1, 2, 7]))
        for number in range(chance.randint(2, 4))
    ]
    parts = _parts(noisy(linear(*costs), seed), tenants, _seconds(costs))
    assert min(parts.values()) > LEAST_PART, (costs, tenants, parts)


@pytest.mark.parametrize("name", COSTS)
def test_two_modest_tenants_beside_one_that_is_away_after_each_step(name: str) -> None:
    cost, seconds = linear(*COSTS[name]), _seconds(COSTS[name])
    tenants = [MODEST, Tenant("other", num_generating=1), Tenant("greedy", num_coming=4)]
    parts = _parts(cost, tenants, seconds)
    assert min(parts["modest"], parts["other"]) > LEAST_PART, parts


@pytest.mark.parametrize("name", COSTS)
def test_tenants_that_come_and_go(name: str) -> None:
    """One that stays has its share in each stretch, whatever the others do."""
    cost, stretch = linear(*COSTS[name]), _seconds(COSTS[name], num_steps=15)
    alone = _alone(cost, MODEST, stretch)
    simulation = Simulation(cost)
    simulation.enter(MODEST)
    got = [0]
    for number in range(6):
        others = [Tenant(f"{number}-{kind}", num_generating=8, num_appending=8) for kind in range(number % 3)]
        simulation.enter(*others)
        simulation.run(stretch)
        got.append(simulation.num_tokens["modest"])
        for other in others:
            simulation.leave(other)
    for number, (before, after) in enumerate(pairwise(got)):
        assert after - before > LEAST_PART * alone * stretch / (1 + number % 3)


@pytest.mark.parametrize("factor", [0.1, 10.0])
@pytest.mark.parametrize("name", COSTS)
def test_costs_that_change(name: str, factor: float) -> None:
    """Measures are renewed: by what lags when costs rise, by probes when they fall."""
    now = linear(*COSTS[name])
    simulation = Simulation(lambda step: now(step))
    tenants = [MODEST, Tenant("greedy", num_generating=8, num_appending=8)]
    simulation.enter(*tenants)
    simulation.run(_seconds(COSTS[name]))
    now = linear(*(part * factor for part in COSTS[name]))
    seconds = factor * _seconds(COSTS[name], num_steps=20)
    for _ in range(NUM_SAMPLES * 2 * PROBE_STEPS * 2):  # both loads are measured anew; half of the steps are shared
        simulation.step()
    before = dict(simulation.num_tokens)
    simulation.run(seconds)
    for tenant in tenants:
        alone = _alone(now, tenant, seconds)
        got = (simulation.num_tokens[tenant.name] - before[tenant.name]) / seconds
        assert got > LEAST_PART * alone / 2


def test_a_tenant_may_not_save_up_time() -> None:
    """Long without work, it has no more than its share when it comes back."""
    cost = linear(*COSTS["compute"])
    simulation = Simulation(cost)
    simulation.enter(MODEST, GREEDY[4])
    simulation.run(10.0)
    simulation.leave(GREEDY[4])
    simulation.run(30.0)
    simulation.enter(GREEDY[4])
    before = simulation.num_tokens["modest"]
    simulation.run(15.0)
    alone = _alone(cost, MODEST, 15.0)
    assert simulation.num_tokens["modest"] - before > LEAST_PART * alone * 15.0 / 2


ONE = Load(num_generates=1, num_prefill_tokens=0)
CHUNK = Load(num_generates=0, num_prefill_tokens=32)
BOTH = {"a": ONE, "b": ONE}


def _known(seconds: float) -> TenantShares:
    """Two tenants whose steps alone take so long; nobody lags."""
    shares = TenantShares()
    for _ in range(4):
        for tenant in BOTH:
            shares.account({tenant: ONE}, {tenant: 1}, seconds)
    return shares


def test_one_tenant_always_runs() -> None:
    shares = TenantShares()
    assert list(shares.choose({"a": ONE})) == ["a"]
    assert list(shares.choose({})) == []


def test_a_load_that_was_never_measured_runs_alone_once() -> None:
    shares = TenantShares()
    chosen = []
    for _ in range(3):
        running = shares.choose(BOTH)
        chosen.append(sorted(running))
        shares.account(BOTH, dict.fromkeys(running, 1), 1.0)
    assert chosen == [["a"], ["a", "b"], ["a", "b"]], "what it costs one it costs the other"
    assert shares.choose({"a": ONE, "b": CHUNK}) == ["b"], "another load is another measure"


def test_a_failed_step_uses_time_and_measures_nothing() -> None:
    shares = _known(1.0)
    for _ in range(3):
        shares.account(BOTH, {"b": 1}, 4.0, is_whole=False)
    assert shares.choose(BOTH) == ["a"], "it waited for them"
    loads = {"c": CHUNK, "d": CHUNK}
    shares.account(loads, {"c": 32}, 0.001, is_whole=False)
    assert shares.choose(loads) == ["d"], "the load was not measured"


def test_a_part_of_a_load_measures_nothing() -> None:
    shares = TenantShares()
    loads = {"a": CHUNK, "b": CHUNK}
    shares.account(loads, {"a": 8}, 1.0)
    assert len(shares.choose(loads)) == 1, "the load is still to be measured"
    shares.account(loads, {"b": 32}, 1.0)
    assert set(shares.choose(loads)) == {"a", "b"}


def test_measures_are_bounded_and_the_oldest_goes_first() -> None:
    shares = TenantShares()
    loads = [Load(1 << number % 20, 1 << number // 20) for number in range(MAX_MEASURES + 1)]
    for load in loads:
        shares.account({"a": load}, {"a": load.num_tokens}, 1.0)
    assert len(shares._measures) == MAX_MEASURES
    assert shares.choose(dict.fromkeys("ab", loads[0])) == ["a"], "to be measured again"
    assert shares.choose(dict.fromkeys("ab", loads[1])) == ["a", "b"]


def test_a_probe_is_of_the_load_whose_measure_is_oldest() -> None:
    shares = TenantShares()
    loads = {"a": ONE, "b": ONE, "c": CHUNK}
    shares.account({"c": CHUNK}, {"c": 32}, 1.0)
    for tenant in ("b", "a"):
        shares.account({tenant: ONE}, {tenant: 1}, 1.0)
    probed: list[str] = []
    while len(probed) < 4:
        running = shares.choose(loads)
        shares.account(loads, {name: loads[name].num_tokens for name in running}, 1.0)
        if len(running) == 1:
            probed += running
    assert probed == ["c", "b", "c", "a"]


def test_the_others_wait_for_who_lags() -> None:
    shares = _known(1.0)
    shares.account(BOTH, {"b": 1}, 4.0)
    assert shares.choose(BOTH) == ["a"]
    shares.account(BOTH, {"a": 1}, 1.0)
    assert shares.choose(BOTH) == ["a"]
    shares.account(BOTH, {"a": 1}, 1.0)
    assert shares.choose(BOTH) == ["a", "b"], "a step of its own is left to cheap company"


def test_a_part_of_a_load_is_a_part_of_the_work() -> None:
    loads = {"a": CHUNK, "b": CHUNK}
    whole, half = TenantShares(), TenantShares()
    for shares, num_tokens in ((whole, 32), (half, 16)):
        for tenant in loads:
            shares.account({tenant: CHUNK}, {tenant: 32}, 1.0)
        shares.account(loads, {"a": num_tokens, "b": 32}, 2.0)
        shares.account(loads, {"b": 32}, 1.6)
    assert whole.choose(loads) == ["a", "b"]
    assert half.choose(loads) == ["a"]


def test_every_so_often_one_tenant_is_measured_again() -> None:
    shares = _known(1.0)
    alone: list[str] = []
    for _ in range(4 * PROBE_STEPS):
        running = shares.choose(BOTH)
        if len(running) == 1:
            alone += running
        shares.account(BOTH, dict.fromkeys(running, 1), 1.0)
    assert alone == ["a", "b", "a", "b"]


def test_a_lag_ends_somewhere() -> None:
    """A tenant kept waiting for ever, as no scheduler does, would be owed ever more."""
    shares = _known(0.1)
    for _ in range(1000):
        shares.account(BOTH, {"b": 1}, 1.0)
    num_alone = 0
    while shares.choose(BOTH) == ["a"]:
        shares.account(BOTH, {"a": 1}, 0.1)
        num_alone += 1
    assert 0.05 * num_alone <= MAX_LAG_SECONDS


def test_a_step_longer_than_any_lag_is_made_up_for() -> None:
    shares = _known(1.0)
    long = 20 * MAX_LAG_SECONDS
    shares.account(BOTH, {"b": 1}, long)
    num_alone = 0
    while shares.choose(BOTH) == ["a"]:
        shares.account(BOTH, {"a": 1}, 1.0)
        num_alone += 1
    assert long - 3 <= num_alone <= long


def test_who_is_ahead_and_goes_away_waits_there() -> None:
    """What it owes is paid back meanwhile; somebody new does not pay for it."""
    shares = _known(1.0)
    shares.account(BOTH, {"b": 1}, 10.0)
    for _ in range(10):
        shares.account({"a": ONE}, {"a": 1}, 1.0)
    assert shares.choose({"a": ONE, "c": ONE}) == ["a", "c"], "nobody lags"


def test_who_comes_back_still_owes() -> None:
    shares = _known(1.0)
    shares.account(BOTH, {"b": 1}, 10.0)
    shares.account({"a": ONE}, {"a": 1}, 1.0)
    num_alone = 0
    while shares.choose(BOTH) == ["a"]:
        shares.account(BOTH, {"a": 1}, 1.0)
        num_alone += 1
    assert num_alone == 7, "it lagged by 5, by 4.5 then, and stops at a step of its own"


def test_what_was_long_away_is_forgotten() -> None:
    shares = _known(1.0)
    shares.account(BOTH, {"b": 1}, 4.0)
    shares.account({"b": ONE}, {"b": 1}, FORGET_SECONDS + 1.0)
    assert list(shares._tenants) == ["b"]
    assert shares.choose(BOTH) == ["a", "b"], "what it was owed is forgotten"
