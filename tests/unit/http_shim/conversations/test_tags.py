"""Tags: equal for equal conversations under equal conditions, and for nothing else."""

import json
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_http_shim.conversations import tags
from kakeya_http_shim.conversations.fingerprints import fingerprint
from kakeya_http_shim.conversations.tags import MAX_TAGS, Candidate
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.requests.messages import AssistantMessage, Message

CONDITIONS: dict[str, Any] = {
    "head": "<s>Be brief.",
    "templates": ["{{ messages }}"],
    "tokenizer": "d1",
    "model": "nano",
    "options": {"sink": 4, "window": 64, "pin": None, "on_overflow": "evict"},
}
ROOT = tags.root(**CONDITIONS)
OTHER_CONDITIONS: list[dict[str, Any]] = [
    {"head": ""},
    {"head": "<s>Be brief"},
    {"head": "<s>Be brief.\ud800"},
    {"head": "", "templates": ["<s>Be brief.", "{{ messages }}"]},
    {"templates": []},
    {"templates": ["{{ messages }}", ""]},
    {"templates": ["{{ messages }} "]},
    {"tokenizer": ""},
    {"tokenizer": "nano", "model": "d1"},
    {"model": "nano2"},
    {"options": {}},
    *(
        {"options": {**CONDITIONS["options"], name: 5}}
        for name in ("sink", "window", "pin", "retention", "on_overflow")
    ),
]


def messages(*given: dict[str, Any] | str) -> Sequence[Message]:
    """Texts are the user's."""
    written = [{"role": "user", "content": each} if isinstance(each, str) else each for each in given]
    return ChatRequest.read(json.dumps({"messages": written}).encode()).messages


def said(content: object) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def test_a_root_depends_on_each_condition() -> None:
    roots = [ROOT, *(tags.root(**(CONDITIONS | changed)) for changed in OTHER_CONDITIONS)]
    assert len(set(roots)) == len(roots)
    assert {len(root) for root in roots} == {32}


def test_a_root_does_not_depend_on_the_order_of_options() -> None:
    options = dict(reversed(CONDITIONS["options"].items()))
    assert tags.root(**(CONDITIONS | {"options": options, "templates": ("{{ messages }}",)})) == ROOT


def test_a_chain_has_an_element_before_each_message_and_one_behind_all() -> None:
    given = messages("a", said("b"), "c")
    chain = tags.chain(ROOT, given)
    assert chain[0] == ROOT
    assert [tags.link(before, message) for before, message in zip(chain, given, strict=False)] == chain[1:]
    assert tags.chain(ROOT, given[:2]) == chain[:3]
    assert tags.chain(ROOT, []) == [ROOT]


def test_no_two_tags_of_a_conversation_are_equal() -> None:
    same: list[dict[str, Any] | str] = [said("a"), "a", "a", said("a"), said("a")]
    chain = tags.chain(ROOT, messages(*same))
    found = [
        *chain,
        *(tags.head(link) for link in chain),
        *(tags.end(link, closed=closed) for link in chain for closed in (False, True)),
        *(tags.start(link, variables=variables) for link in chain for variables in ({}, {"a": 1}, {"a": True})),
        *(fingerprint(message) for message in messages("a", said("a"))),
    ]
    assert len(set(found)) == len(found)
    assert {len(tag) for tag in found} == {32}


def test_no_variables_are_as_good_as_none() -> None:
    assert tags.start(ROOT, variables=None) == tags.start(ROOT, variables={})
    one, other = ({"a": 1, "b": [{"c": None, "d": ""}]}, {"b": [{"d": "", "c": None}], "a": 1})
    assert tags.start(ROOT, variables=one) == tags.start(ROOT, variables=other)


@pytest.mark.parametrize("content", ["b", " b\n", [{"type": "text", "text": "b"}]])
@pytest.mark.parametrize("closed", [False, True])
def test_an_answer_is_found_by_what_the_client_sends_back(content: object, *, closed: bool) -> None:
    asked = messages("a")
    before = tags.chain(ROOT, asked)[-1]
    answer = AssistantMessage.model_validate({"role": "assistant", "content": "b"})
    given = tags.end_of_answer(before, answer, closed=closed)
    again = messages("a", said(content), "c")
    found = [each for each in tags.candidates(tags.chain(ROOT, again), again, variables=None) if each.tag == given]
    assert found == [Candidate(given, "end", 1, closed=closed)]


def test_the_answer_that_is_asked_for_again_is_found_where_it_began() -> None:
    asked = messages("a")
    chain = tags.chain(ROOT, asked)
    first, *_ = tags.candidates(chain, asked, variables={"enable_thinking": True})
    assert first == Candidate(tags.start(chain[-1], variables={"enable_thinking": True}), "start", 1)
    again = messages("a", said("b"), "c")
    places = tags.candidates(tags.chain(ROOT, again), again, variables={"enable_thinking": True})
    assert [each for each in places if each.tag == first.tag] == [first]
    others = tags.candidates(tags.chain(ROOT, again), again, variables=None)
    assert first.tag not in [each.tag for each in others]


def test_candidates_come_deepest_first() -> None:
    given = messages({"role": "system", "content": "s"}, "a", said("b"), "c", said("d"), said("e"), "f")
    chain = tags.chain(ROOT, given)
    start, end = (lambda index: tags.start(chain[index], variables=None)), (lambda index: chain[index + 1])
    assert tags.candidates(chain, given, variables=None) == [
        Candidate(start(7), "start", 7),
        *(
            place
            for index in (5, 4, 2)
            for place in (
                Candidate(tags.end(end(index), closed=True), "end", index, closed=True),
                Candidate(tags.end(end(index), closed=False), "end", index),
                Candidate(start(index), "start", index),
            )
        ),
        Candidate(tags.head(ROOT), "head", 0),
    ]


@pytest.mark.parametrize("num_answers", [0, 1, 20, 21, 500])
def test_there_are_no_more_than_one_search_takes_and_the_head_is_among_them(num_answers: int) -> None:
    given = messages(*(each for number in range(num_answers) for each in (f"a{number}", said("b"))), "c")
    found = tags.candidates(tags.chain(ROOT, given), given, variables=None)
    assert len(found) == min(2 + 3 * num_answers, MAX_TAGS)
    assert found[-1] == Candidate(tags.head(ROOT), "head", 0)
    assert [each.index for each in found[:-1]] == sorted([each.index for each in found[:-1]], reverse=True)
    assert len({each.tag for each in found}) == len(found)


TURNS = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["system", "user", "assistant"]),
        st.sampled_from(["", "a", "b", "ab"]),
    ),
    min_size=1,
    max_size=6,
)


@given(TURNS, TURNS)
def test_chains_part_where_conversations_do(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    chains = [tags.chain(ROOT, messages(*each)) for each in (one, other)]
    num_common = next(
        (place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
        min(len(one), len(other)),
    )
    assert chains[0][: num_common + 1] == chains[1][: num_common + 1]
    assert not set(chains[0][num_common + 1 :]) & set(chains[1][num_common + 1 :])


@given(TURNS)
def test_the_same_conversation_under_another_root_has_no_tag_in_common(turns: list[dict[str, Any]]) -> None:
    given = messages(*turns)
    roots = (ROOT, *(tags.root(**(CONDITIONS | changed)) for changed in OTHER_CONDITIONS[:3]))
    found = [{each.tag for each in tags.candidates(tags.chain(root, given), given, variables=None)} for root in roots]
    assert all(not one & other for one, other in combinations(found, 2))
