"""The scheduler's plans: budget, fairness, pauses."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_worker.engine.costs.step_costs import REFIT_STEPS, MeasuredStep, StepCosts
from kakeya_worker.engine.lanes.operation import MAX_UNREAD_TOKENS, Append, Generate
from kakeya_worker.engine.steps.scheduler import LEAST_PREFILL_PART, Scheduler, Step, StepBudget
from kakeya_worker.engine.steps.scoring import Scoring
from tests.unit.worker.step_simulation import new_append, new_generate


def _run(scheduler: Scheduler, num_steps: int) -> dict[Append | Generate, int]:
    """Tokens that each operation got in some steps."""
    got: dict[Append | Generate, int] = {}
    for _ in range(num_steps):
        generates, appends = scheduler.next_step()
        assert len(generates) + sum(num for _, num in appends) <= scheduler.budget.tokens
        for generate in generates:
            got[generate] = got.get(generate, 0) + 1
        for append, num_tokens in appends:
            assert 1 <= num_tokens <= scheduler.chunk
            append.num_done += num_tokens
            append.lane.length += num_tokens
            got[append] = got.get(append, 0) + num_tokens
            if append.is_complete:
                scheduler.remove(append)
    return got


def test_every_generate_gets_its_token_while_a_prefill_is_under_way() -> None:
    scheduler = Scheduler(StepBudget(tokens=128), chunk=32)
    generates = [new_generate() for _ in range(5)]
    long = new_append(4000)
    for generate in generates:
        scheduler.add(generate)
    scheduler.add(long)
    got = _run(scheduler, 10)
    assert [got[generate] for generate in generates] == [10] * 5
    assert got[long] == 320


def test_a_prefill_gets_on_beside_more_generates_than_a_step_holds() -> None:
    scheduler = Scheduler(StepBudget(tokens=16), chunk=8)
    generates = [new_generate() for _ in range(40)]
    long = new_append(1000)
    for generate in generates:
        scheduler.add(generate)
    scheduler.add(long)
    got = _run(scheduler, 25)
    assert got[long] == 200
    assert {got[generate] for generate in generates} == {5}


def test_prefills_take_turns() -> None:
    scheduler = Scheduler(StepBudget(tokens=32), chunk=32)
    appends = [new_append(320) for _ in range(4)]
    for append in appends:
        scheduler.add(append)
    got = _run(scheduler, 20)
    assert [got[append] for append in appends] == [160] * 4


@pytest.mark.parametrize("step_tokens", [8, 31, 33, 48, 100])
def test_a_prefill_that_is_cut_short_goes_on_before_the_others(step_tokens: int) -> None:
    scheduler = Scheduler(StepBudget(step_tokens), chunk=32)
    appends = [new_append(100_000) for _ in range(4)]
    for append in appends:
        scheduler.add(append)
    got = _run(scheduler, 400)
    assert sum(got.values()) == 400 * step_tokens, "no turn leaves anything over"
    assert max(got.values()) - min(got.values()) <= 2 * scheduler.chunk


def test_a_short_prefill_does_not_wait_for_a_long_one() -> None:
    scheduler = Scheduler(StepBudget(tokens=32), chunk=32)
    long, short = new_append(10_000), new_append(3)
    scheduler.add(long)
    scheduler.add(short)
    _run(scheduler, 2)
    assert short.is_complete


def test_a_generate_whose_reader_lags_is_passed_over() -> None:
    scheduler = Scheduler(StepBudget(tokens=8), chunk=8)
    paused, free = new_generate(), new_generate()
    paused.num_generated = MAX_UNREAD_TOKENS
    scheduler.add(paused)
    assert not scheduler.has_work
    scheduler.add(free)
    assert scheduler.next_step() == ([free], [])
    paused.num_read = 1
    assert scheduler.next_step() == ([paused, free], [])
    assert set(scheduler.operations) == {paused, free}


def test_a_removed_operation_gets_nothing() -> None:
    scheduler = Scheduler(StepBudget(tokens=8), chunk=8)
    for operation in (new_generate(), new_append(9)):
        scheduler.add(operation)
        scheduler.remove(operation)
    assert not scheduler.has_work
    assert scheduler.next_step() == ([], [])


def _shared_steps(scheduler: Scheduler, num_steps: int) -> list[dict[str, int]]:
    """Tokens by tenant, of the steps with both of two tenants."""
    steps: list[dict[str, int]] = []
    for _ in range(2 + num_steps):  # two loads are measured in a step each, at most
        num_tokens = scheduler.next_step().num_tokens
        scheduler.account(1.0)
        if len(num_tokens) == 2:
            steps.append(dict(num_tokens))
    return steps[:num_steps]


def test_chunks_go_round_the_tenants_first() -> None:
    scheduler = Scheduler(StepBudget(tokens=128), chunk=32)
    for append in [*(new_append(10_000, "many") for _ in range(6)), *(new_append(10_000, "few") for _ in range(2))]:
        scheduler.add(append)
    assert _shared_steps(scheduler, 3) == [{"many": 64, "few": 64}] * 3


def test_tokens_go_round_the_tenants_first_where_a_step_is_short() -> None:
    scheduler = Scheduler(StepBudget(tokens=7), chunk=2)
    generates = [*(new_generate("many") for _ in range(10)), *(new_generate("few") for _ in range(5))]
    for generate in generates:
        scheduler.add(generate)
    first, second = _shared_steps(scheduler, 2)
    assert sorted(first.values()) == sorted(second.values()) == [3, 4]
    assert first != second, "the odd one goes round too"


def test_a_tenant_s_sessions_take_turns_within_its_part() -> None:
    scheduler = Scheduler(StepBudget(tokens=6), chunk=2)
    generates = [new_generate("many") for _ in range(9)]
    for generate in (*generates, *(new_generate("few") for _ in range(3))):
        scheduler.add(generate)
    _shared_steps(scheduler, 0)
    got = dict.fromkeys(generates, 0)
    for _ in range(3):
        for generate in scheduler.next_step().generates:
            if generate.tenant == "many":
                got[generate] += 1
        scheduler.account(1.0)
    assert set(got.values()) == {1}


# A token costs a tenth of a step, and so do a hundred visible slots.
COSTS = StepCosts(step_seconds=0.010, token_seconds=0.001, slot_seconds=0.000_01)
SIZES = [(1, 1), (1, 2000), (32, 2000)]  # tokens and visible slots


def _knowing(budget: StepBudget, costs: StepCosts = COSTS) -> Scheduler:
    """A scheduler that has measured steps of such costs."""
    scheduler = Scheduler(budget, chunk=32)
    scheduler.measures.start([MeasuredStep(*size, costs.seconds(*size)) for size in SIZES])
    return scheduler


def test_a_prefill_takes_no_longer_than_those_who_generate_or_is_one_token() -> None:
    scheduler = _knowing(StepBudget(128))
    scheduler.add(new_generate())  # 11.01 ms
    short, long = new_append(1000, window=4096), new_append(1000, window=4096, length=5000)
    scheduler.add(short)
    assert scheduler.next_step().appends == [(short, 8)]  # of 1.32 ms each
    scheduler.remove(short)
    scheduler.add(long)
    assert scheduler.next_step().appends == [(long, 1)]  # of 41.96 ms
    scheduler.add(new_generate(window=4096, length=5000))  # both: 52.97 ms
    assert scheduler.next_step().appends == [(long, 1)]
    scheduler.add(new_generate(window=4096, length=5000))  # all three: 94.93 ms
    assert scheduler.next_step().appends == [(long, 2)]


def test_nobody_waits_for_a_prefill_beside_a_paused_generate() -> None:
    scheduler = _knowing(StepBudget(128))
    paused, long = new_generate(), new_append(1000, window=4096, length=5000)
    paused.num_generated = MAX_UNREAD_TOKENS
    scheduler.add(paused)
    scheduler.add(long)
    assert scheduler.next_step() == ([], [(long, 32)])


def test_prefills_of_unlike_windows_get_on_alike() -> None:
    scheduler = _knowing(StepBudget(128))
    narrow, wide = new_append(100_000, window=64, length=5000), new_append(100_000, window=4096, length=5000)
    for operation in (new_generate(), narrow, wide):
        scheduler.add(operation)
    got = _run(scheduler, 1000)
    assert abs(got[narrow] - got[wide]) <= 2 * scheduler.chunk


def _seconds(costs: StepCosts, step: Step) -> float:
    """As the engine's rows would be counted: every token sees its own slots."""
    rows = [(generate.lane, 1) for generate in step.generates] + [(append.lane, num) for append, num in step.appends]
    visible = [min(lane.length + number, lane.retention.capacity) for lane, num in rows for number in range(1, num + 1)]
    return costs.seconds(len(visible), sum(visible))


_session = st.tuples(st.booleans(), st.sampled_from([16, 64, 2048]), st.integers(0, 4000))
_all_costs = st.builds(StepCosts, st.floats(1e-4, 0.1), st.floats(0.0, 0.01), st.floats(0.0, 1e-4))


@settings(deadline=None, max_examples=50)
@given(st.lists(_session, min_size=1, max_size=6), _all_costs, st.none() | st.floats(1e-4, 1.0))
def test_steps_keep_their_budget_and_everybody_gets_on(
    sessions: list[tuple[bool, int, int]], costs: StepCosts, seconds: float | None
) -> None:
    scheduler = _knowing(StepBudget(64, seconds), costs)
    operations: dict[Append | Generate, int] = {}
    for is_generate, window, length in sessions:
        make = new_generate if is_generate else lambda **lane: new_append(10_000, **lane)
        operations[make(window=window, length=length)] = 0
    for operation in operations:
        scheduler.add(operation)
    for _ in range(32 * len(operations)):
        step = scheduler.next_step()
        load_seconds = costs.seconds(step.load.num_tokens, step.load.num_visible_slots)
        own_seconds = _seconds(costs, Step(step.generates, []))
        allowed_seconds = max(2 * own_seconds if seconds is None else seconds, (1 + LEAST_PREFILL_PART) * own_seconds)
        is_least = sum(num for _, num in step.appends) <= 1
        assert not step.generates or is_least or _seconds(costs, step) <= allowed_seconds * (1 + 1e-6)
        for generate in step.generates:
            operations[generate] += 1
        for append, num_tokens in step.appends:
            operations[append] += num_tokens
            append.num_done += num_tokens
            append.lane.length += num_tokens
        scheduler.account(load_seconds)  # as the load is measured: the fit stays as it is
    appended = [num for operation, num in operations.items() if isinstance(operation, Append)]
    assert all(operations.values())
    assert not appended or max(appended) - min(appended) <= 2 * scheduler.chunk


class _Name(str):
    """A tenant's name that counts how often it is looked up."""

    num_lookups = 0
    __eq__ = str.__eq__

    def __hash__(self) -> int:
        _Name.num_lookups += 1
        return super().__hash__()


def _lookups_of_a_step(num_tenants: int) -> int:
    scheduler = Scheduler(StepBudget(tokens=128), chunk=32)
    for number in range(num_tenants):
        name = _Name(number)
        for operation in (new_generate(name), new_generate(name), new_append(1000, name), new_append(1000, name)):
            scheduler.add(operation)
    scheduler.next_step()
    scheduler.account(1.0)
    _Name.num_lookups = 0
    scheduler.next_step()
    scheduler.account(1.0)
    return _Name.num_lookups


def test_planning_is_in_proportion_to_the_operations() -> None:
    assert _lookups_of_a_step(128) == pytest.approx(8 * _lookups_of_a_step(16), rel=0.5)


def test_what_a_draft_model_takes_is_no_part_of_what_a_step_costs() -> None:
    scheduler = Scheduler(StepBudget(128), 32)
    scheduler.measures.start([MeasuredStep(tokens, 0, 0.0105 + 0.001 * tokens) for tokens in (1, 32, 64)])
    scheduler.add(new_generate())
    num_visible_slots = scheduler.next_step().num_visible_slots
    for _ in range(2 * REFIT_STEPS):
        scheduler.account(0.01 + 0.0115, drafting_seconds={"": 0.01})
    assert scheduler.measures.costs.seconds(1, num_visible_slots) == pytest.approx(0.0115)


def test_scoring_is_no_part_of_what_a_step_costs_and_slows_those_down_who_ask_for_it() -> None:
    scheduler = Scheduler(StepBudget(128), 32)
    scheduler.measures.start([MeasuredStep(tokens, 0, 0.0105 + 0.001 * tokens) for tokens in (1, 32, 64)])
    scored = new_append(1000)
    scored.num_top_logprobs = 0
    scheduler.add(new_generate())
    scheduler.add(scored)
    assert scheduler.next_step().appends == [(scored, 11)]
    scoring = Scoring(None)  # type: ignore[arg-type]  # nothing is scored here
    scoring.num_tokens, scoring.seconds = 11, 1.1
    for _ in range(2 * REFIT_STEPS):
        scheduler.account(1.1 + 0.0225, scoring=scoring)
    assert scheduler.measures.costs.seconds(12, 0) == pytest.approx(0.0225)
    assert scheduler.next_step().appends == [(scored, 1)]
    scheduler.remove(scored)
    plain = new_append(1000)
    scheduler.add(plain)
    assert scheduler.next_step().appends == [(plain, 11)]
