"""What a server without sessions is sent: all of it, or what fits its context."""

from hypothesis import given
from hypothesis import strategies as st

from kakeya.bench.compare.history import History


def test_without_a_context_all_of_it_is_sent() -> None:
    history = History()
    for turn in range(50):
        assert history.hear([turn, turn], max_tokens=1) == 0
        history.say([100 + turn])
    assert history.tokens == [token for turn in range(50) for token in (turn, turn, 100 + turn)]
    assert history.length == 150


def test_blocks_are_dropped_after_the_tokens_that_are_kept() -> None:
    history = History(20, keep=2, drop=10)
    assert history.hear(list(range(8)), max_tokens=2) == 0
    history.say([8, 9])
    assert history.hear([10, 11, 12, 13, 14, 15], max_tokens=4) == 0, "it fits to the token"
    history.say([16, 17, 18, 19])
    assert history.hear([20], max_tokens=1) == 10
    assert history.tokens == [0, 1, *range(12, 21)]
    assert history.length == 21


def test_several_blocks_are_dropped_where_one_makes_too_little_room() -> None:
    history = History(20, keep=0, drop=3)
    history.hear(list(range(18)), max_tokens=2)
    history.say([18, 19])
    assert history.hear([20, 21, 22, 23], max_tokens=1) == 6
    assert history.tokens == list(range(6, 24))


def test_the_new_tokens_are_never_dropped() -> None:
    history = History(10, keep=1, drop=100)
    history.hear([0, 1, 2], max_tokens=1)
    history.say([3])
    assert history.hear([4, 5, 6, 7, 8, 9, 10], max_tokens=2) == 3
    assert history.tokens == [0, 4, 5, 6, 7, 8, 9, 10]


@given(
    keep=st.integers(0, 8),
    drop=st.integers(1, 80),
    room=st.integers(0, 60),
    max_tokens=st.integers(1, 6),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=40),
)
def test_whatever_is_said_it_fits(keep: int, drop: int, room: int, max_tokens: int, lengths: list[int]) -> None:
    context = keep + max(lengths) + max_tokens + room
    history = History(context, keep=keep, drop=drop)
    said: list[int] = []
    for length in lengths:
        before = len(history.tokens)
        new_tokens = list(range(len(said), len(said) + length))
        said += new_tokens
        num_dropped = history.hear(new_tokens, max_tokens)
        assert len(history.tokens) == before - num_dropped + length
        assert len(history.tokens) + max_tokens <= context
        assert history.tokens[:keep] == said[: min(keep, len(history.tokens))]
        assert history.tokens[keep:] == said[len(said) - len(history.tokens[keep:]) :], "the others are the last"
        assert num_dropped % drop == 0 or num_dropped == before - min(keep, before), "in blocks, or all there is"
        assert num_dropped == 0 or before + length + max_tokens > context, "never without need"
        assert num_dropped < drop or before + length + max_tokens - (num_dropped - drop) > context, "one fewer: too few"
        answer = list(range(len(said), len(said) + max_tokens))
        said += answer
        history.say(answer)
        assert history.length == len(said)
