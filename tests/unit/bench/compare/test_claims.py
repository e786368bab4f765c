"""Claims about chats: first tokens beside the runtime's, appended tokens, sessions that go on, processor time."""

import pytest

from kakeya_bench.compare.settings import CompareSettings
from kakeya_bench.compare.turns import LongChat, PlayedTurn
from kakeya_bench.report.verdict import Outcome, Verdict
from tests.unit.bench.compare.comparing import played, report

CHAT = "--rival=b=http://h/v1,api=chat,model=m,tokenizer=t,messages=617"


def judge(flag: str, *turns: PlayedTurn, num_turns: int = 12, long: LongChat | None = None) -> dict[str, Verdict]:
    made = report(*turns, flags=(f"--turns={num_turns}", CHAT, flag))
    made.long_chats = {} if long is None else {"b": long}
    return {verdict.gate: verdict for verdict in made.verdicts()}


def both(num_turns: int, ours: float, theirs: float) -> list[PlayedTurn]:
    """Turns of the same length, but for the first two of twelve, which are no part of the last ten."""
    return [
        played(index, 9.0 if index <= num_turns - 10 else seconds, name)
        for index in range(1, num_turns + 1)
        for name, seconds in (("kakeya", ours), ("b", theirs))
    ]


@pytest.mark.parametrize(
    ("theirs", "outcome"), [(0.1149, Outcome.PASSED), (0.1151, Outcome.FAILED), (0.01, Outcome.PASSED)]
)
def test_the_first_token_of_the_last_ten_turns(theirs: float, outcome: Outcome) -> None:
    verdict = judge("--at-most=b=1.1+5", *both(12, 0.1, theirs))["b first token"]
    assert verdict.outcome is outcome
    assert verdict.formula == "time to first token, median of the turns 3 to 12: b <= 1.1 x kakeya + 5 ms"
    assert verdict.reason == f"{theirs * 1e3:,.1f} ms, at most 1.1 x 100.0 ms + 5 ms"
    assert verdict.figures["bound"] == pytest.approx(0.115)


def test_first_tokens_of_a_short_conversation() -> None:
    verdict = judge("--at-most=b=1.1", *both(3, 0.1, 0.11), num_turns=3)["b first token"]
    assert verdict.outcome is Outcome.PASSED
    assert verdict.figures["turns"] == 3


def test_first_tokens_that_are_missing() -> None:
    for missing, who in ((23, "b"), (22, "kakeya")):
        turns = both(12, 0.1, 0.1)
        del turns[missing]
        verdict = judge("--at-most=b=1.1+5", *turns)["b first token"]
        assert (verdict.outcome, verdict.reason) == (Outcome.UNDECIDED, f"{who} has 9 of 10 first tokens there")


def chat(
    index: int, *, appended: int | None = 100, state: str | None = "continued", why: str = "next-turn"
) -> PlayedTurn:
    state, why = ("new", "first-turn") if index == 1 and state else (state, why)
    return played(
        index, 1.0, "b", num_new_tokens=100, num_appended_tokens=appended, session_state=state, session_why=why
    )


def test_each_turn_goes_on_and_appends_what_is_new() -> None:
    found = judge("--goes-on=b", *(chat(index) for index in range(1, 4)))
    assert {name: verdict.outcome for name, verdict in found.items()} == {
        "b appended": Outcome.PASSED,
        "b continued": Outcome.PASSED,
    }
    assert found["b appended"].reason == "300 appended in 3 turns, 300 new"
    assert found["b continued"].reason == "2 of 2 turns"


@pytest.mark.parametrize("index", [1, 2, 5])
@pytest.mark.parametrize("appended", [99, 101, None])
def test_one_turn_that_appends_another_number(index: int, appended: int | None) -> None:
    turns = [chat(each, appended=appended if each == index else 100) for each in range(1, 6)]
    verdict = judge("--goes-on=b", *turns)["b appended"]
    assert verdict.outcome is Outcome.FAILED
    assert verdict.reason.endswith(f". turn {index}: {appended} for 100")
    assert verdict.figures["unequal"] == 1


@pytest.mark.parametrize("state", ["forked", "new"])
def test_turns_that_do_not_go_on(state: str) -> None:
    turns = [chat(each, state=state if each > 2 else "continued", why="template") for each in range(1, 9)]
    verdict = judge("--goes-on=b", *turns)["b continued"]
    assert verdict.outcome is Outcome.FAILED
    assert verdict.reason.startswith(f"1 of 7 turns. turn 3: {state} (template); turn 4: ")
    assert verdict.reason.endswith(" and 1 more")
    failed = judge("--goes-on=b", chat(1), chat(2), played(3, None, "b"))["b continued"]
    assert (failed.outcome, failed.reason) == (Outcome.FAILED, "1 of 2 turns. turn 3: it failed")


def test_sessions_of_which_nothing_is_said() -> None:
    for turns in ([], [chat(1, appended=None, state=None), chat(2, appended=None, state=None)]):
        found = judge("--goes-on=b", *turns)
        assert {verdict.outcome for verdict in found.values()} == {Outcome.UNDECIDED}


@pytest.mark.parametrize(("seconds", "outcome"), [(0.0149, Outcome.PASSED), (0.0151, Outcome.FAILED)])
def test_processor_time_of_a_long_chat(seconds: float, outcome: Outcome) -> None:
    verdict = judge("--cpu-at-most=b=15", long=LongChat(617, [1.0, seconds, 0.001]))["b cpu"]
    assert verdict.outcome is outcome
    assert verdict.formula == "processor time for 617 messages, median of 3 requests <= 15.00 ms"


@pytest.mark.parametrize("long", [None, LongChat(617), LongChat(617, [0.01], error="HTTP 500: no")])
def test_processor_time_that_is_not_known(long: LongChat | None) -> None:
    verdict = judge("--cpu-at-most=b=15", long=long)["b cpu"]
    assert verdict.outcome is Outcome.UNDECIDED
    assert verdict.formula == "processor time of b for a request of a long chat <= 15 ms"


def test_what_a_program_allows_is_taken_as_it_is() -> None:
    settings = CompareSettings(rival="b=http://127.0.0.1:1/v1", at_most={"b": (1.1, 5.0)})  # type: ignore[arg-type]
    assert settings.at_most == {"b": (1.1, 5.0)}
