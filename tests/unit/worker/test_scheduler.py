"""The scheduler's integers: budget, fairness, pauses."""

import pytest

from kakeya_worker.engine.operation import MAX_UNREAD_TOKENS, Append, Generate
from kakeya_worker.engine.scheduler import Scheduler
from tests.unit.worker.step_simulation import new_append, new_generate


def _run(scheduler: Scheduler, num_steps: int) -> dict[Append | Generate, int]:
    """Tokens that each operation got in some steps."""
    got: dict[Append | Generate, int] = {}
    for _ in range(num_steps):
        generates, appends = scheduler.next_step()
        assert len(generates) + sum(num for _, num in appends) <= scheduler.step_tokens
        for generate in generates:
            got[generate] = got.get(generate, 0) + 1
        for append, num_tokens in appends:
            assert 1 <= num_tokens <= scheduler.chunk
            append.num_done += num_tokens
            got[append] = got.get(append, 0) + num_tokens
            if append.is_complete:
                scheduler.remove(append)
    return got


def test_every_generate_gets_its_token_while_a_prefill_is_under_way() -> None:
    scheduler = Scheduler(step_tokens=128, chunk=32)
    generates = [new_generate() for _ in range(5)]
    long = new_append(4000)
    for generate in generates:
        scheduler.add(generate)
    scheduler.add(long)
    got = _run(scheduler, 10)
    assert [got[generate] for generate in generates] == [10] * 5
    assert got[long] == 320


def test_a_prefill_gets_on_beside_more_generates_than_a_step_holds() -> None:
    scheduler = Scheduler(step_tokens=16, chunk=8)
    generates = [new_generate() for _ in range(40)]
    long = new_append(1000)
    for generate in generates:
        scheduler.add(generate)
    scheduler.add(long)
    got = _run(scheduler, 25)
    assert got[long] == 200
    assert {got[generate] for generate in generates} == {5}


def test_prefills_take_turns() -> None:
    scheduler = Scheduler(step_tokens=32, chunk=32)
    appends = [new_append(320) for _ in range(4)]
    for append in appends:
        scheduler.add(append)
    got = _run(scheduler, 20)
    assert [got[append] for append in appends] == [160] * 4


def test_a_short_prefill_does_not_wait_for_a_long_one() -> None:
    scheduler = Scheduler(step_tokens=32, chunk=32)
    long, short = new_append(10_000), new_append(3)
    scheduler.add(long)
    scheduler.add(short)
    _run(scheduler, 2)
    assert short.is_complete


def test_a_generate_whose_reader_lags_is_passed_over() -> None:
    scheduler = Scheduler(step_tokens=8, chunk=8)
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
    scheduler = Scheduler(step_tokens=8, chunk=8)
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
    scheduler = Scheduler(step_tokens=128, chunk=32)
    for append in [*(new_append(10_000, "many") for _ in range(6)), *(new_append(10_000, "few") for _ in range(2))]:
        scheduler.add(append)
    assert _shared_steps(scheduler, 3) == [{"many": 64, "few": 64}] * 3


def test_tokens_go_round_the_tenants_first_where_a_step_is_short() -> None:
    scheduler = Scheduler(step_tokens=7, chunk=2)
    generates = [*(new_generate("many") for _ in range(10)), *(new_generate("few") for _ in range(5))]
    for generate in generates:
        scheduler.add(generate)
    first, second = _shared_steps(scheduler, 2)
    assert sorted(first.values()) == sorted(second.values()) == [3, 4]
    assert first != second, "the odd one goes round too"


def test_a_tenant_s_sessions_take_turns_within_its_part() -> None:
    scheduler = Scheduler(step_tokens=6, chunk=2)
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


class _Name(str):
    """A tenant's name that counts how often it is looked up."""

    num_lookups = 0
    __eq__ = str.__eq__

    def __hash__(self) -> int:
        _Name.num_lookups += 1
        return super().__hash__()


def _lookups_of_a_step(num_tenants: int) -> int:
    scheduler = Scheduler(step_tokens=128, chunk=32)
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
