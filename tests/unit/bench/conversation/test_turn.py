"""What follows from the figures of a turn."""

from dataclasses import replace

from kakeya_bench.conversation.turn import Turn

TURN = Turn(
    session=0, index=3, started_seconds=1.0, wall_seconds=2.0, capacity=20, num_new_tokens=7, num_tokens_out=5,
    history_length=32,
)  # fmt: skip


def test_the_history_before_a_turn_is_without_what_it_brought() -> None:
    assert TURN.history_before == 20


def test_a_turn_that_begins_with_a_full_lane_is_after_the_plateau() -> None:
    assert TURN.is_after_plateau
    assert replace(TURN, history_length=33).is_after_plateau
    assert not replace(TURN, history_length=31).is_after_plateau, "a token fits"
    assert not replace(TURN, error="WorkerLost: gone").is_after_plateau
