"""Chains that are remembered are those that would be made anew."""

import gc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_http_shim.conversations import tags
from kakeya_http_shim.conversations.chains import Chains
from kakeya_http_shim.conversations.fingerprints import fingerprint
from kakeya_http_shim.requests.compacted_message import Compacted, CompactedMessage
from kakeya_http_shim.requests.messages import Message
from tests.unit.http_shim.conversations.test_tags import ROOT, messages, said

OTHER_ROOT = bytes(32)


def new(*roles: str) -> list[Message]:
    """Messages of which all of a role are equal, and none the same."""
    return [*messages(*({"role": role, "content": role} for role in roles))]


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """Messages that are looked into from here on."""
    found: list[Message] = []

    def looked_into(message: Message) -> bytes:
        found.append(message)
        return fingerprint(message)

    monkeypatch.setattr(tags, "fingerprint", looked_into)
    return found


def test_what_an_earlier_request_had_is_not_hashed_again(hashed: list[Message]) -> None:
    chains, before, later = Chains(), new("user", "assistant", "user"), new("assistant", "user")
    head = new("system")
    first = chains.of(ROOT, [*head, *before])
    hashed.clear()
    again = new("system")  # which each request brings anew
    found = chains.of(ROOT, [*again, *before, *later])
    assert (found[: len(first)], hashed) == (first, [*again, *later])
    assert found == tags.chain(ROOT, [*head, *before, *later])
    hashed.clear()
    assert chains.of(ROOT, [*again, *before[:2]]) == first[:4]
    assert hashed == again
    hashed.clear()
    assert chains.of(ROOT, [*again, *before, *later]) == found, "the branch has taken its place"
    assert hashed == [*again, before[2], *later]


@pytest.mark.parametrize("differs", ["root", "head", "first", "middle"])
def test_of_other_messages_nothing_is_known(differs: str) -> None:
    chains, before = Chains(), new("user", "assistant", "user")
    chains.of(ROOT, before)
    root = OTHER_ROOT if differs == "root" else ROOT
    head = new("system") if differs == "head" else []
    place = {"first": 0, "middle": 1}.get(differs)
    given = (
        [*messages(said("No."))] if place is None else [*before[:place], *messages(said("No.")), *before[place + 1 :]]
    )
    given = [*head, *(before if place is None else given)]
    assert chains.of(root, given) == tags.chain(root, given) != tags.chain(ROOT, before)


def test_a_head_alone() -> None:
    for head in ([], new("system", "developer")):
        assert Chains().of(ROOT, head) == tags.chain(ROOT, head)


def test_what_was_compacted(hashed: list[Message]) -> None:
    compacted = CompactedMessage.of(Compacted("d1", ROOT, b"l" * 32, (1, 2), 9))
    chains, given = Chains(), [compacted, *new("assistant", "user")]
    for root in (ROOT, OTHER_ROOT):
        chains.of(root, given)
        hashed.clear()
        assert chains.of(root, given) == tags.chain(root, given)
        assert len(hashed) == 2, "by `tags.chain` alone"


def test_messages_that_are_gone_are_not_taken_for_others() -> None:
    """A later object may lie where one did."""
    chains = Chains()
    for number in range(200):
        given = [*messages(f"{number}", said("Yes."))]
        assert chains.of(ROOT, given) == tags.chain(ROOT, given)
        del given
        gc.collect(0)


@pytest.mark.parametrize("num_remembered", [0, 5, 40])
def test_no_more_is_remembered_than_is_said(num_remembered: int) -> None:
    chains, kept = Chains(num_remembered), [new("user", *["assistant", "user"] * (number % 5)) for number in range(40)]
    for each in [*kept, *reversed(kept)]:
        assert chains.of(ROOT, each) == tags.chain(ROOT, each)
        in_all = sum(len(made.links) for made in chains._latest.values())
        assert chains._num_messages == in_all <= num_remembered
        assert all(len(made.links) == len(made.messages) for made in chains._latest.values())


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 3), st.booleans()), max_size=20))
def test_whatever_goes_on_from_whatever(steps: Sequence[tuple[int, int, int, bool]]) -> None:
    """Each step goes on from an earlier conversation, from a place in it, with new messages."""
    chains, conversations = Chains(), [new("system", "user")]
    for source, place, num_new, is_other in steps:
        before = conversations[source % len(conversations)]
        given = [*before[: place % (len(before) + 1)], *new(*["assistant", "user", "system"][:num_new])]
        root = OTHER_ROOT if is_other else ROOT
        assert chains.of(root, given) == tags.chain(root, given)
        conversations.append(given)


def test_several_threads_at_once() -> None:
    chains, shared = Chains(50), new("user", *["assistant", "user"] * 10)

    def ask(number: int) -> bool:
        given = [*shared[: number % 20 + 1], *new("assistant")]
        return chains.of(ROOT, given) == tags.chain(ROOT, given)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, range(400)))
    assert chains._num_messages == sum(len(each.links) for each in chains._latest.values())
