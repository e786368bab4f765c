"""Which snapshots and how much journal a session needs, against what can be put together from them."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kakeya_router.snapshots.snapshot_plan import chain, chains, journal_start, kept, next_start
from kakeya_router.store.sessions.stored_snapshots import Snapshots, StoredSnapshot, parse, text

# As many as a session record has; see add_boundary in lua/prelude/session.lua.
NUM_BOUNDARIES = 4
LONGEST_CHAIN = 32

stored_snapshots = st.builds(
    StoredSnapshot, st.text(), st.integers(0, 2**53), st.integers(0, 2**53), st.integers(0, 2**53)
)
# Tokens that come, whether a turn ends with them, and whether a snapshot is then written: none, any that will do, or
# a whole one, as on a worker with another store.
steps = st.lists(
    st.tuples(st.integers(1, 4), st.booleans(), st.sampled_from(["none", "next", "next", "whole"])), max_size=100
)


def snapshots_of(*starts_and_lengths: tuple[int, int]) -> Snapshots:
    return tuple(
        StoredSnapshot(f"p/one-1-{start}-{length}.safetensors", start, length, 100)
        for start, length in starts_and_lengths
    )


def lengths(snapshots: Snapshots) -> list[int]:
    return [each.length for each in snapshots]


def ends(snapshots: Snapshots) -> set[int]:
    """Lengths at which the files hold the session, and 0, where nobody needs one."""
    found = {0}
    for each in snapshots:
        if each.start in found:
            found.add(each.length)
    return found


def can_be_had(snapshots: Snapshots, first: int, length: int) -> bool:
    """Whether the session can be had at a length, with a journal that holds its tokens from the index `first` on."""
    return any(end == length or first <= end < length for end in ends(snapshots))


@st.composite
def forests(draw: st.DrawFn) -> Snapshots:
    """Snapshots that follow any others, and now and then one that is not there."""
    found: list[tuple[int, int]] = []
    for length in sorted(draw(st.sets(st.integers(1, 40), max_size=12))):
        bases = st.sampled_from([0, *(known for _, known in found)])
        found.append((draw(bases | st.integers(0, length - 1)), length))
    return snapshots_of(*found)


boundaries_of_turns = st.lists(st.integers(0, 45), max_size=NUM_BOUNDARIES).map(sorted)


def test_a_record_keeps_snapshots_as_lists() -> None:
    assert text(()) == ""
    assert text(snapshots_of((0, 5), (5, 9))) == (
        '[["p/one-1-0-5.safetensors",0,5,100],["p/one-1-5-9.safetensors",5,9,100]]'
    )


@given(st.lists(stored_snapshots).map(tuple))
def test_what_a_record_keeps_is_read_back(snapshots: Snapshots) -> None:
    assert parse(text(snapshots)) == snapshots
    assert text(parse(text(snapshots))) == text(snapshots)


def test_a_chain_begins_with_a_whole_snapshot_and_ends_at_or_before_the_length() -> None:
    snapshots = snapshots_of((0, 10), (10, 20), (0, 25), (20, 30))
    assert lengths(chain(snapshots, 30)) == [10, 20, 30]
    assert lengths(chain(snapshots, 29)) == [25]
    assert lengths(chain(snapshots, 24)) == [10, 20]
    assert chain(snapshots, 9) == chain((), 9) == ()


def test_a_snapshot_whose_beginning_is_missing_is_passed_over() -> None:
    snapshots = snapshots_of((0, 10), (15, 20), (20, 30))
    assert lengths(chain(snapshots, 30)) == [10]
    assert chain(snapshots[1:], 30) == ()


@given(forests(), st.integers(0, 45))
def test_a_chain_ends_as_late_as_it_can(snapshots: Snapshots, length: int) -> None:
    found = chain(snapshots, length)
    assert set(found) <= set(snapshots)
    assert [each.start for each in found] == [0, *lengths(found)][: len(found)]
    assert max([0, *lengths(found)]) == max(end for end in ends(snapshots) if end <= length)


def test_the_first_snapshot_is_whole() -> None:
    assert next_start((), 5, 100) == 0


def test_a_snapshot_follows_the_newest_until_a_whole_one_costs_no_more() -> None:
    assert next_start(snapshots_of((0, 500)), 599, 100) == 500
    assert next_start(snapshots_of((0, 500)), 600, 100) == 0
    assert next_start(snapshots_of((0, 500), (500, 550)), 599, 100) == 550
    assert next_start(snapshots_of((0, 500), (500, 550)), 600, 100) == 0


def test_a_snapshot_never_follows_one_that_cannot_be_used() -> None:
    assert next_start(snapshots_of((0, 10), (15, 20)), 30, 100) == 10
    assert next_start(snapshots_of((15, 20)), 30, 100) == 0


def test_a_chain_of_32_files_is_followed_by_a_whole_one() -> None:
    snapshots = snapshots_of(*((length - 1, length) for length in range(1, LONGEST_CHAIN + 1)))
    assert next_start(snapshots[:-1], LONGEST_CHAIN, 1000) == LONGEST_CHAIN - 1
    assert next_start(snapshots, LONGEST_CHAIN + 1, 1000) == 0


@given(st.integers(1, 100), st.lists(st.integers(1, 60), max_size=80))
def test_no_chain_is_long_or_holds_much_more_than_a_session_keeps(num_kept: int, gains: list[int]) -> None:
    snapshots: Snapshots = ()
    length = 0
    for gain in gains:
        length += gain
        snapshots += snapshots_of((next_start(snapshots, length, num_kept), length))
        newest = chain(snapshots, length)
        assert newest[-1] is snapshots[-1]
        assert len(newest) <= min(LONGEST_CHAIN, num_kept + 1)
        assert newest[-1].length - newest[0].length < num_kept
    num_whole = sum(each.start == 0 for each in snapshots)
    assert num_whole <= 1 + len(gains) // LONGEST_CHAIN + length // num_kept


def test_the_two_newest_are_kept_with_all_that_they_follow() -> None:
    snapshots = snapshots_of((0, 10), (10, 20), (20, 30), (0, 40), (40, 50))
    assert lengths(kept(snapshots[:3], ())) == [10, 20, 30]
    assert lengths(kept(snapshots[:4], ())) == [10, 20, 30, 40]
    assert lengths(kept(snapshots, ())) == [40, 50]
    assert kept((), (5,)) == ()


def test_what_is_before_a_boundary_is_kept() -> None:
    snapshots = snapshots_of((0, 10), (10, 20), (0, 30), (30, 40), (40, 50), (0, 60), (60, 70))
    assert lengths(kept(snapshots, (25, 45))) == [10, 20, 30, 40, 60, 70]
    assert lengths(kept(snapshots, (5, 10, 65))) == [10, 60, 70]


@given(forests(), boundaries_of_turns)
def test_what_is_kept_holds_as_much_as_all_did(snapshots: Snapshots, boundaries: list[int]) -> None:
    rest = kept(snapshots, boundaries)
    assert list(rest) == [each for each in snapshots if each in rest]
    assert ends(rest) == {0, *lengths(rest)}  # none of no use is among them
    for length in [*lengths(snapshots[-2:]), *boundaries]:
        assert chain(rest, length) == chain(snapshots, length)
    assert kept(rest, boundaries) == rest


def test_the_journal_goes_back_to_the_second_newest_snapshot() -> None:
    snapshots = snapshots_of((0, 10), (10, 20), (20, 30))
    assert journal_start(snapshots, ()) == 20
    assert journal_start(snapshots[:2], ()) == 10
    assert journal_start(snapshots[:1], ()) == journal_start((), ()) == 0


def test_the_journal_goes_back_to_what_is_before_a_boundary_without_a_snapshot() -> None:
    snapshots = snapshots_of((0, 10), (0, 20), (0, 30), (0, 40))
    assert journal_start(snapshots, (10, 20)) == 30
    assert journal_start(snapshots, (25, 35)) == 20
    assert journal_start(snapshots, (5, 35)) == 0
    assert journal_start(snapshots, (45,)) == 30


def check_session(snapshots: Snapshots, first: int, boundaries: Sequence[int], length: int) -> None:
    """It can be had wherever it is promised, from a journal that begins at the index `first`."""
    for wanted in [length, *lengths(snapshots[-2:]), *boundaries]:
        assert can_be_had(snapshots, first, wanted)
    # Without the newest file, which no other one follows.
    older = snapshots[:-1]
    for wanted in [length, *lengths(older[-1:])]:
        assert can_be_had(older, first, wanted)


@given(forests(), boundaries_of_turns, st.integers(0, 9))
def test_any_snapshots_and_the_journal_from_its_start_are_enough(
    snapshots: Snapshots, boundaries: list[int], num_after: int
) -> None:
    rest = kept(snapshots, boundaries)
    length = max([0, *lengths(snapshots), *boundaries]) + num_after
    check_session(rest, journal_start(rest, boundaries), boundaries, length)


@given(st.integers(1, 4), steps)
def test_a_session_can_be_had_all_its_life_and_a_few_files_are_enough(
    num_kept: int, life: list[tuple[int, bool, str]]
) -> None:
    snapshots: Snapshots = ()
    boundaries: list[int] = []
    length = first = 0
    for num_tokens, is_turn, written in life:
        length += num_tokens
        if written != "none":
            start = next_start(snapshots, length, num_kept) if written == "next" else 0
            snapshots = kept((*snapshots, *snapshots_of((start, length))), boundaries)
            assert snapshots[-1].length == length
            first = max(first, journal_start(snapshots, boundaries))  # what has left the journal never comes back
        if is_turn:
            boundaries = [*boundaries, length][-NUM_BOUNDARIES:]
        check_session(snapshots, first, boundaries, length)
        assert len(snapshots) <= (2 + NUM_BOUNDARIES) * (num_kept + 1)


@given(forests(), st.integers(0, 45), st.integers(1, 45))
def test_all_chains_from_which_a_length_can_be_had_are_found(snapshots: Snapshots, first: int, length: int) -> None:
    found = chains(snapshots, first, length)
    assert bool(found) == can_be_had(snapshots, first, length)
    assert all(not each or each == chain(snapshots, each[-1].length) for each in found)
    reached = [each[-1].length if each else 0 for each in found]
    assert reached == sorted((end for end in ends(snapshots) if end == length or first <= end < length), reverse=True)
