"""Levels in figures whose answers are known, what the gates say of them, and what their sessions weigh."""

from collections.abc import Awaitable, Callable

import pytest

from kakeya_bench.conversation.runtime import connected
from kakeya_bench.load.level import KvTotal, Level, LevelState, kv_total
from kakeya_bench.load.report import aggregate, judge, largest_within
from kakeya_bench.report.verdict import Outcome, Verdict
from kakeya_stubs.admin.v1 import admin_pb2 as pb
from tests.unit.bench.conversation.playing import PlainSettings
from tests.unit.bench.load.sweeping import Always, asked, failed, level, turn
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import BYTES_PER_TOKEN, ScriptedRuntime, fails, passes

PASSED, FAILED, UNDECIDED, SKIPPED = Outcome.PASSED, Outcome.FAILED, Outcome.UNDECIDED, Outcome.SKIPPED
NINE_OF_TEN = (*[turn()] * 18, turn(9.0), failed())
NOT_SEEN = {
    "the level was not reached": [],
    "not one got in: NoCapacity: full": [Level(2, refusal="NoCapacity: full", state=LevelState.REFUSED)],
    "the level did not come to its end": [level(2, turn(), state=LevelState.BROKEN_OFF)],
    "no turn began after the warm-up": [level(2, turn(is_warm_up=True))],
}
"""Why a level of two sessions cannot be judged."""


@pytest.mark.parametrize(
    ("first", "each", "are_met"),
    [
        (1.0, 0.1, True),
        (2.0, 0.2, True),
        (2.001, 0.1, False),
        (1.0, 0.201, False),
        (1.0, None, True),
        (2.001, None, False),
        (None, None, False),
    ],
)
def test_both_limits_must_be_met(first: float | None, each: float | None, are_met: bool) -> None:
    """Also by answers of one token and of none."""
    assert asked().is_in_time(turn(first, each)) is are_met
    assert not asked().is_in_time(turn(first, each, error="Internal: after the last token"))


def test_goodput_is_the_turns_in_time_in_a_second() -> None:
    good = [turn() for _ in range(5)]
    late = [turn(2.5, 0.1), turn(1.0, 0.3)]
    found = aggregate(level(2, *good, *late, failed(), measured_seconds=20.0), asked())
    assert (found["num_turns"], found["num_errors"], found["num_within_limits"]) == (8, 1, 5)
    assert found["share_within_limits"] == 5 / 8
    assert (found["goodput_turns_per_s"], found["turns_per_s"]) == (5 / 20, 7 / 20)
    assert (found["num_tokens_in"], found["num_tokens_out"]) == (7 * 3, 7 * 11)
    assert (found["tokens_out_per_s"], found["measured_s"]) == (77 / 20, 20.0)


def test_the_warm_up_does_not_count() -> None:
    slow = turn(9.0, 9.0, is_warm_up=True)
    with_it = aggregate(level(1, slow, failed(is_warm_up=True), turn(), turn()), asked())
    assert with_it == aggregate(level(1, turn(), turn()), asked())
    assert with_it["num_turns"] == 2


def test_distributions_are_of_the_turns_that_succeeded() -> None:
    turns = [turn(seconds, seconds / 10, wall_seconds=2 * seconds) for seconds in (3.0, 1.0, 2.0, 5.0, 4.0)]
    found = aggregate(level(1, *turns, failed(wall_seconds=99.0)), asked())
    for name, size in (("time_to_first_token_s", 1.0), ("time_per_output_token_s", 0.1), ("turn_s", 2.0)):
        expected = {"min": 1.0, "mean": 3.0, "max": 5.0, "p50": 3.0, "p90": 4.6, "p95": 4.8, "p99": 4.96}
        assert found[name] == pytest.approx({share: size * value for share, value in expected.items()})


def test_nothing_is_computed_of_nothing() -> None:
    found = aggregate(Level(4), asked())
    numbers = {name: value for name, value in found.items() if value is not None}
    assert numbers == {
        "measured_s": 0.0,
        "num_turns": 0,
        "num_errors": 0,
        "num_within_limits": 0,
        "num_tokens_in": 0,
        "num_tokens_out": 0,
    }
    assert aggregate(level(1, measured_seconds=10.0), asked())["goodput_turns_per_s"] == 0.0


def test_the_largest_level_with_enough_turns_in_time() -> None:
    nine_of_ten = [*[turn()] * 9, turn(9.0)]
    levels = [level(1, turn()), level(2, *nine_of_ten), level(4, turn(), turn(9.0)), level(8, turn(9.0))]
    assert [largest_within(levels, asked("--goal-share", goal)) for goal in ("0.5", "0.9", "0.91")] == [4, 2, 1]
    assert largest_within([], asked()) is None
    assert largest_within([level(1), level(2, turn(9.0))], asked()) is None
    not_full, broken_off = level(4, turn(), num_opened=3), level(8, turn(), state=LevelState.BROKEN_OFF)
    assert largest_within([level(1, turn()), not_full, broken_off], asked()) == 1, "that one lacks its longest turns"


def said(gate: str, levels: list[Level], *flags: str) -> Verdict:
    found = judge(levels, asked("--sessions", "1,2", *flags))
    return next(verdict for verdict in found if verdict.gate == gate)


def test_errors_are_turns_that_failed() -> None:
    """Which is known although other levels cannot be judged, and counts in the warm-up, too."""
    verdict = said("errors", [level(1, turn()), level(2, turn(9.0), turn())])
    assert (verdict.outcome, verdict.reason) == (PASSED, "none of 3 turns failed")
    verdict = said("errors", [level(1, turn()), level(2, turn(), failed(session=1, index=7), failed())])
    assert (verdict.outcome, verdict.figures) == (FAILED, {"num_turns": 4, "num_errors": 2})
    assert verdict.reason == "2 of 4 turns failed; the first: 2 sessions, session 1 turn 7: Internal: no"
    verdict = said("errors", [level(1, failed(is_warm_up=True), turn())])
    assert (verdict.outcome, "the first: 1 session, session 0 turn 1" in verdict.reason) == (FAILED, True)


@pytest.mark.parametrize("reason", NOT_SEEN)
def test_what_was_not_seen_is_not_judged(reason: str) -> None:
    levels = [level(1, *[turn()] * 20), *NOT_SEEN[reason]]
    for gate in ("errors", "goodput"):
        verdict = said(gate, levels, "--judge-goodput")
        assert (verdict.outcome, verdict.reason) == (UNDECIDED, f"2 sessions: {reason}")


@pytest.mark.parametrize(
    ("largest", "flags", "outcome", "reason"),
    [
        (level(2, *NINE_OF_TEN), [], PASSED, "2 sessions: 90.0% of 20 turns met both limits"),
        (level(2, *NINE_OF_TEN, failed()), [], FAILED, "2 sessions: 85.7% of 21 turns met both limits"),
        (level(2, *NINE_OF_TEN), ["--goal-share", "0.91"], FAILED, "2 sessions: 90.0% of 20 turns met both limits"),
        (level(2, *[turn()] * 10), ["--ttft-limit-s", "0.99"], FAILED, "2 sessions: 0.0% of 10 turns met both limits"),
        (level(2, *[turn()] * 10), ["--tpot-limit-s", "0.09"], FAILED, "2 sessions: 0.0% of 10 turns met both limits"),
        (level(2, *[turn()] * 9), [], UNDECIDED, "2 sessions: 9 turns count, and it takes 10"),
        (
            level(2, *[turn()] * 20, num_opened=1, refusal="NoCapacity: full"),
            [],
            FAILED,
            "1 of 2 sessions got in; the next: NoCapacity: full",
        ),
    ],
)
def test_goodput_of_the_largest_level(largest: Level, flags: list[str], outcome: Outcome, reason: str) -> None:
    verdict = said("goodput", [level(1, turn(9.0)), largest], "--judge-goodput", *flags)
    assert (verdict.outcome, verdict.reason) == (outcome, reason)
    assert verdict.figures["num_turns"] == len(largest.counted)


def test_nobody_asks_for_goodput_unless_told_so() -> None:
    verdict = said("goodput", [], "--goal-share", "0.29", "--ttft-limit-s", "1.5", "--tpot-limit-s", "0.04")
    assert (verdict.outcome, verdict.reason) == (SKIPPED, "not asked for")
    assert verdict.formula == (
        "with 2 sessions, all get in, and 29 % of the turns or more meet both limits: 1.5 s to the first token, "
        "0.04 s for each token after it"
    )


Weigh = Callable[..., Awaitable[KvTotal]]


@pytest.fixture
def weigh(runtime: ScriptedRuntime) -> Weigh:
    """Opens sessions with so many tokens, and asks for their weight."""

    async def weigh(*histories: int) -> KvTotal:
        async with connected(PlainSettings.parse(["--address", runtime.address])) as (client, workers):
            sessions = [await client.create_session() for _ in histories]
            for session, length in zip(sessions, histories, strict=True):
                await session.append([1] * length)
            return await kv_total(sessions, workers)

    return weigh


def status(reported: int, age_seconds: float = 0.0, worker_id: str = "scripted") -> pb.WorkerStatus:
    return pb.WorkerStatus(worker_id=worker_id, reported_kv_live_bytes=reported, last_heartbeat_age_seconds=age_seconds)


async def test_the_sessions_and_the_worker_say_how_much(weigh: Weigh, admin: ScriptedAdmin) -> None:
    """A worker of several sessions counts once, and those of others not at all."""
    admin.workers = [status(31_000), status(1_000, worker_id="of others")]
    assert await weigh(3, 10, 99) == KvTotal((3 + 10 + 20) * BYTES_PER_TOKEN, 31_000)
    assert await weigh() == KvTotal(0, 0), "as where the last session was lost"


async def test_it_waits_for_a_heartbeat_after_the_last_turn(weigh: Weigh, admin: ScriptedAdmin) -> None:
    def beats(context: object) -> None:
        admin.workers = [status(2)]

    admin.workers = [status(1, age_seconds=3.0)]
    admin.before["ListWorkers"] += [passes, passes, beats]
    assert (await weigh(1)).workers_bytes == 2
    assert len(admin.requests["ListWorkers"]) == 3


@pytest.mark.parametrize("workers", [[], [status(1, age_seconds=60.0)]], ids=["not listed", "silent"])
async def test_it_does_not_wait_for_ever(weigh: Weigh, admin: ScriptedAdmin, workers: list[pb.WorkerStatus]) -> None:
    admin.workers = workers
    assert await weigh(5) == KvTotal(5 * BYTES_PER_TOKEN, None, "worker scripted does not say")


async def test_a_key_that_is_no_operators(weigh: Weigh, admin: ScriptedAdmin) -> None:
    admin.before["ListWorkers"] = Always([fails("PERMISSION_DENIED")])
    why_not = "the router does not list its workers: scripted PERMISSION_DENIED"
    assert await weigh(5) == KvTotal(5 * BYTES_PER_TOKEN, None, why_not)


async def test_a_session_that_does_not_say(weigh: Weigh, runtime: ScriptedRuntime) -> None:
    runtime.before["GetSessionInfo"] += [passes, fails("INTERNAL")]
    assert await weigh(5, 5) == KvTotal(None, None, "a session does not say: Internal: scripted INTERNAL")
