"""The scheduler's integers: budget, fairness, pauses."""

from kakeya_worker.engine.geometry import LaneGeometry
from kakeya_worker.engine.lane import Lane
from kakeya_worker.engine.operation import MAX_UNREAD_TOKENS, Append, Generate
from kakeya_worker.engine.retention import SessionOptions, sink_window
from kakeya_worker.engine.sampling import Sampling
from kakeya_worker.engine.scheduler import Scheduler

GEOMETRY = LaneGeometry(sink=0, window=64, chunk=32)


def _lane() -> Lane:
    return Lane(GEOMETRY, 0, sink_window(SessionOptions(), GEOMETRY))


def _append(num_tokens: int) -> Append:
    append = Append("s", 1, 0, (1,) * num_tokens)
    append.begin(_lane())
    return append


def _generate(max_tokens: int = 100) -> Generate:
    generate = Generate(
        "s", 1, 0, max_tokens=max_tokens, eos_token_ids=frozenset(), sampling=Sampling(), on_token=lambda *_: None
    )
    generate.begin(_lane())
    return generate


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
    generates = [_generate() for _ in range(5)]
    long = _append(4000)
    for generate in generates:
        scheduler.add(generate)
    scheduler.add(long)
    got = _run(scheduler, 10)
    assert [got[generate] for generate in generates] == [10] * 5
    assert got[long] == 320


def test_a_prefill_gets_on_beside_more_generates_than_a_step_holds() -> None:
    scheduler = Scheduler(step_tokens=16, chunk=8)
    generates = [_generate() for _ in range(40)]
    long = _append(1000)
    for generate in generates:
        scheduler.add(generate)
    scheduler.add(long)
    got = _run(scheduler, 25)
    assert got[long] == 200
    assert {got[generate] for generate in generates} == {5}


def test_prefills_take_turns() -> None:
    scheduler = Scheduler(step_tokens=32, chunk=32)
    appends = [_append(320) for _ in range(4)]
    for append in appends:
        scheduler.add(append)
    got = _run(scheduler, 20)
    assert [got[append] for append in appends] == [160] * 4


def test_a_short_prefill_does_not_wait_for_a_long_one() -> None:
    scheduler = Scheduler(step_tokens=32, chunk=32)
    long, short = _append(10_000), _append(3)
    scheduler.add(long)
    scheduler.add(short)
    _run(scheduler, 2)
    assert short.is_complete


def test_a_generate_whose_reader_lags_is_passed_over() -> None:
    scheduler = Scheduler(step_tokens=8, chunk=8)
    paused, free = _generate(), _generate()
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
    for operation in (_generate(), _append(9)):
        scheduler.add(operation)
        scheduler.remove(operation)
    assert not scheduler.has_work
    assert scheduler.next_step() == ([], [])
