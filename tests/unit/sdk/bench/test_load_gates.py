"""What the gates of `kakeya bench load` say of levels."""

from kakeya.bench.load.gates import FEWEST_TURNS, judge
from kakeya.bench.load.level import Level, LevelState
from kakeya.bench.verdict import Outcome, Verdict
from tests.unit.sdk.bench.sweeping import asked, failed, level, turn

PASSED, FAILED, UNDECIDED, SKIPPED = Outcome.PASSED, Outcome.FAILED, Outcome.UNDECIDED, Outcome.SKIPPED


def said(gate: str, levels: list[Level], *flags: str) -> Verdict:
    options = asked("--sessions", "1,2", *flags)
    return next(verdict for verdict in judge(levels, options) if verdict.gate == gate)


class TestErrors:
    def test_no_turn_failed(self) -> None:
        verdict = said("errors", [level(1, turn()), level(2, turn(9.0), turn())])
        assert (verdict.outcome, verdict.reason) == (PASSED, "none of 3 turns failed")

    def test_one_did(self) -> None:
        verdict = said("errors", [level(1, turn()), level(2, turn(), failed(session=1, index=7), failed())])
        assert verdict.outcome is FAILED
        assert verdict.reason == "2 of 4 turns failed; the first: 2 sessions, session 1 turn 7: Internal: no"
        assert verdict.figures == {"num_turns": 4, "num_errors": 2}

    def test_one_did_in_the_warm_up(self) -> None:
        verdict = said("errors", [level(1, failed(is_warm_up=True), turn()), level(2, turn())])
        assert verdict.outcome is FAILED
        assert "the first: 1 session, session 0 turn 1" in verdict.reason

    def test_a_failure_is_one_although_other_levels_cannot_be_judged(self) -> None:
        assert said("errors", [level(1, failed())]).outcome is FAILED

    def test_what_was_not_seen_is_not_judged(self) -> None:
        refused = Level(2, refusal="NoCapacity: full", state=LevelState.REFUSED)
        for last, reason in {
            "the level was not reached": [],
            "not one got in: NoCapacity: full": [refused],
            "the level did not come to its end": [level(2, turn(), state=LevelState.BROKEN_OFF)],
            "no turn began after the warm-up": [level(2, turn(is_warm_up=True))],
        }.items():
            verdict = said("errors", [level(1, turn()), *reason])
            assert (verdict.outcome, verdict.reason) == (UNDECIDED, f"2 sessions: {last}")


class TestGoodput:
    def test_nobody_asks_unless_told_so(self) -> None:
        verdict = said("goodput", [level(1, turn()), level(2, turn(9.0))])
        assert (verdict.outcome, verdict.reason) == (SKIPPED, "not asked for")

    def test_the_largest_level_is_judged(self) -> None:
        nine_of_ten = [*[turn()] * 18, turn(9.0), failed()]
        verdict = said("goodput", [level(1, turn(9.0)), level(2, *nine_of_ten)], "--judge-goodput")
        assert verdict.outcome is PASSED
        assert verdict.reason == "2 sessions: 90.0% of 20 turns met both limits"
        assert verdict.figures == {"share_within_limits": 0.9, "num_turns": 20}
        verdict = said("goodput", [level(1, turn()), level(2, *nine_of_ten, turn(9.0))], "--judge-goodput")
        assert verdict.outcome is FAILED

    def test_the_formula_says_what_was_asked(self) -> None:
        flags = ("--goal-share", "0.29", "--ttft-limit-s", "1.5", "--tpot-limit-s", "0.04")
        assert said("goodput", [], *flags).formula == (
            "with 2 sessions, all get in, and 29 % of the turns or more meet both limits: 1.5 s to the first token, "
            "0.04 s for each token after it"
        )

    def test_the_goal_is_the_users(self) -> None:
        levels = [level(1, turn()), level(2, *[turn()] * 5, *[turn(9.0)] * 5)]
        assert said("goodput", levels, "--judge-goodput", "--goal-share", "0.5").outcome is PASSED
        assert said("goodput", levels, "--judge-goodput", "--goal-share", "0.51").outcome is FAILED

    def test_so_are_the_limits(self) -> None:
        levels = [level(1, turn()), level(2, *[turn()] * 10)]
        assert said("goodput", levels, "--judge-goodput", "--ttft-limit-s", "0.99").outcome is FAILED
        assert said("goodput", levels, "--judge-goodput", "--tpot-limit-s", "0.099").outcome is FAILED

    def test_who_did_not_get_in_got_no_answer(self) -> None:
        partly = level(2, *[turn()] * 20, num_opened=1, refusal="NoCapacity: full")
        verdict = said("goodput", [level(1, turn()), partly], "--judge-goodput")
        assert (verdict.outcome, verdict.reason) == (FAILED, "1 of 2 sessions got in; the next: NoCapacity: full")

    def test_a_few_turns_say_nothing_of_a_share(self) -> None:
        verdict = said("goodput", [level(1, turn()), level(2, *[turn()] * (FEWEST_TURNS - 1))], "--judge-goodput")
        assert (verdict.outcome, verdict.reason) == (UNDECIDED, "2 sessions: 9 turns count, and it takes 10")

    def test_what_was_not_seen_is_not_judged(self) -> None:
        verdict = said("goodput", [level(1, *[turn()] * 20)], "--judge-goodput")
        assert (verdict.outcome, verdict.reason) == (UNDECIDED, "2 sessions: the level was not reached")
