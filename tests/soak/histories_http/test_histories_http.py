"""A slice of `make histories-http`, and what its oracle notices."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kakeya_http_shim.models.model_tokenizer import ModelTokenizer
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.requests.messages import for_template
from tests.integration.open_http import MODEL
from tests.soak.histories_http.asking import Answer, Ask
from tests.soak.histories_http.histories import CHANGES, Message, kept, opening, user
from tests.soak.histories_http.judge import faults_of_history
from tests.soak.histories_http.oracle import Session, difference, num_head_tokens, sent, tokenizer
from tests.soak.histories_http.proof import HistoriesHttp

NUM_CASES, NUM_KILLS, SEED = 400, 2, 7
NUM_HISTORIES = 150
IM_START, IM_END, END_OF_TEXT, RESULT = 2042, 2043, 2041, 2046


@pytest.mark.heavy
def test_no_session_holds_another_conversation(tmp_path: Path) -> None:
    report = HistoriesHttp(cases=NUM_CASES, kills=NUM_KILLS, seed=SEED).run(tmp_path)
    assert report.violations == []
    assert report.facts["requests"] >= NUM_CASES


@cache
def model_tokenizer() -> ModelTokenizer:
    return ModelTokenizer(MODEL)


def written(messages: Sequence[Message]) -> list[int]:
    """As a new session is told it."""
    read = ChatRequest.read(json.dumps({"messages": list(messages)}).encode()).messages
    return model_tokenizer().chat_prompt([for_template(message) for message in read]).token_ids


def histories() -> list[list[Message]]:
    found = []
    for number in range(NUM_HISTORIES):
        draw = random.Random(number)
        messages = opening(draw, may_be_long=number % 10 == 0)
        for _ in range(draw.randint(0, 3)):
            messages = [*messages, kept(draw, draw.choice(("", " Hi!\n", "\u00e9 <tool_call>", "Hm. "))), user(draw)]
        found.append(messages)
    return found


def test_what_a_template_wrote_is_read_back() -> None:
    for messages in histories():
        assert difference(messages, written(messages)) == "", messages


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_history_is_another_one_where_it_says_something_else(name: str) -> None:
    num_others = 0
    for number, messages in enumerate(histories()):
        changed = CHANGES[name](random.Random(number), messages)
        differs = sent(changed) != sent(messages)
        num_others += differs
        assert bool(difference(changed, written(messages))) == differs, (messages, changed)
    assert (num_others > 0) == (name not in ("re-serialized", "cut up"))


def test_a_changed_call_is_another_one() -> None:
    calls = [{"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": [true]}'}}]
    messages: list[Message] = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "tool_calls": calls},
    ]
    token_ids = written(messages)
    for name, arguments, differs in (
        ("add", '{"b":[true],"a":1.0}', False),
        ("add", '{"a": 1, "b": [1]}', True),
        ("add", '{"a": 2, "b": [true]}', True),
        ("sub", '{"a": 1, "b": [true]}', True),
    ):
        function = {"name": name, "arguments": arguments}
        changed = [messages[0], {**messages[1], "tool_calls": [{**calls[0], "function": function}]}]
        assert bool(difference(changed, token_ids)) == differs, function
    assert difference([messages[0], {**messages[1], "tool_calls": calls * 2}], token_ids)
    assert difference([messages[0], {**messages[1], "content": "c"}], token_ids)
    assert difference([messages[0], {"role": "assistant", "content": "b"}], token_ids)


HELLO = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi!"},
    {"role": "user", "content": "a"},
]


def in_answer(*token_ids: int) -> list[int]:
    """The history of HELLO with these at the end of its answer."""
    whole = written(HELLO)
    end = [place for place, token_id in enumerate(whole) if token_id == IM_END][1]
    return [*whole[:end], *token_ids, *whole[end:]]


def test_the_model_may_end_an_answer_in_its_own_way() -> None:
    assert difference(HELLO, in_answer(END_OF_TEXT)) == ""


@pytest.mark.parametrize(
    "token_ids",
    [
        written(HELLO)[:-1],
        written(HELLO)[1:],
        [*written(HELLO), 5],
        [],
        written(HELLO[:1]),
        in_answer(IM_END),
        in_answer(IM_START),
        in_answer(END_OF_TEXT, 5),
        in_answer(*tokenizer().encode("!").ids),
        [RESULT if token_id == written(HELLO)[3] else token_id for token_id in written(HELLO)],
    ],
    ids=["cut", "beheaded", "longer", "empty", "shorter", "two ends", "a beginning", "beyond its end", "more", "marks"],
)
def test_what_no_template_writes_is_noticed(token_ids: list[int]) -> None:
    assert difference(HELLO, token_ids)


def test_the_head_is_counted() -> None:
    system = {"role": "system", "content": "Be brief."}
    assert num_head_tokens(written(HELLO), HELLO) == 0
    assert (
        num_head_tokens(written([system, *HELLO]), [system, *HELLO])
        == written([system, *HELLO])[1:].index(IM_START) + 1
    )
    assert num_head_tokens(written([system]), [system]) > 0


FIELDS = {"max_tokens": 4, "temperature": 1.0, "seed": 5}
ASK = Ask("next turn", "ana", MODEL, HELLO, FIELDS)


def answer(content: str = "Yes.", **fields: Any) -> Answer:
    num_tokens = len(tokenizer().encode(content).ids) + 1
    said = {"state": "new", "id": "a.b", "appended": str(len(written(HELLO))), "reused": "0", "why": "first-turn"}
    usage = {"prompt_tokens": len(written(HELLO)), "completion_tokens": num_tokens}
    return replace(Answer(content, "stop", said, usage), **fields)


def session(content: str = "Yes.", **fields: Any) -> Session:
    token_ids = [*written(HELLO), *tokenizer().encode(content).ids, IM_END]
    return replace(Session(token_ids, "ana", MODEL, 4, 64, "evict", [IM_END], 5), **fields)


def test_an_answer_of_the_conversation_is_well() -> None:
    assert [*faults_of_history(ASK, answer(), session())] == []
    cut = replace(ASK, fields={**FIELDS, "stop": "s"})
    assert [*faults_of_history(cut, answer("Ye"), session())] == []


@pytest.mark.parametrize(
    ("ask", "given", "of"),
    [
        (ASK, answer(), session(tenant="ben")),
        (ASK, answer(), session(model="other")),
        (ASK, answer(), session(on_overflow="refuse")),
        (ASK, answer(), session(token_ids=written(HELLO)[:-1])),
        (ASK, answer("No."), session()),
        (ASK, answer(), session("Yes. Yes.")),
        (replace(ASK, messages=[*HELLO[:2], {"role": "user", "content": "b"}]), answer(), session()),
        (replace(ASK, messages=[{**HELLO[0], "role": "system"}, *HELLO[1:]]), answer(), session()),
    ],
    ids=["tenant", "model", "overflow", "length", "answer", "longer answer", "text", "role"],
)
def test_an_answer_of_anything_else_is_noticed(ask: Ask, given: Answer, of: Session) -> None:
    assert [*faults_of_history(ask, given, of)]


def test_a_head_that_is_forgotten_is_noticed() -> None:
    messages = [{"role": "system", "content": "Be brief."}, *HELLO]
    said = {**answer().session, "appended": str(len(written(messages)))}
    for sink, is_well in ((4, False), (40, True)):
        of = session(token_ids=written(messages), sink=sink, seed=6)
        assert (not [*faults_of_history(replace(ASK, messages=messages), answer(session=said), of)]) == is_well
