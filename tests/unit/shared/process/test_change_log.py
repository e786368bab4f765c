"""What has changed since a viewer last looked."""

from hypothesis import given
from hypothesis import strategies as st

from kakeya_shared.process.change_log import Change, ChangeLog


def _seen(changes: list[Change[str, int]] | None) -> list[tuple[str, int, bool]] | None:
    return None if changes is None else [(each.key, each.value, each.is_removed) for each in changes]


def test_a_viewer_learns_of_each_thing_once_and_the_latest_of_it() -> None:
    log: ChangeLog[str, int] = ChangeLog()
    log.put("a", 1)
    log.put("b", 1)
    seen = log.version
    for number in range(100):
        log.put("b", number)
    assert _seen(log.since(seen)) == [("b", 99, False)]
    assert _seen(log.since(log.version)) == []
    assert log.keys() == ["a", "b"]


def test_what_is_as_it_was_is_no_change() -> None:
    log: ChangeLog[str, int] = ChangeLog()
    log.put("a", 1)
    seen = log.version
    log.put("a", 1)
    log.remove("b")
    assert log.version == seen


def test_what_is_gone_is_told_with_what_it_was() -> None:
    log: ChangeLog[str, int] = ChangeLog()
    log.put("a", 1)
    seen = log.version
    log.remove("a")
    assert _seen(log.since(seen)) == [("a", 1, True)]
    assert _seen(log.all()) == []
    log.put("a", 2)
    assert _seen(log.since(seen)) == [("a", 2, False)]


def test_who_was_away_for_too_many_removals_begins_anew() -> None:
    log: ChangeLog[str, int] = ChangeLog(max_removed=2)
    for name in "abcd":
        log.put(name, 1)
    seen = log.version
    for name in "abc":
        log.remove(name)
    assert log.since(seen) is None
    assert _seen(log.since(seen + 1)) == [("c", 1, True), ("b", 1, True)]
    assert _seen(log.all()) == [("d", 1, False)]


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.one_of(st.none(), st.integers(0, 2)), st.booleans()), max_size=60),
    st.integers(1, 3),
)
def test_a_viewer_that_looks_now_and_then_sees_what_there_is(
    steps: list[tuple[str, int | None, bool]], max_removed: int
) -> None:
    log: ChangeLog[str, int] = ChangeLog(max_removed)
    there: dict[str, int] = {}
    view: dict[str, int] = {}
    seen = 0
    for name, value, looks in [*steps, ("a", 0, True)]:
        if value is None:
            log.remove(name)
            there.pop(name, None)
        else:
            log.put(name, value)
            there[name] = value
        if looks:
            changes = log.since(seen)
            if changes is None:
                view, changes = {}, log.all()
            for change in changes:
                if change.is_removed:
                    view.pop(change.key, None)
                else:
                    view[change.key] = change.value
            seen = log.version
            assert view == there
