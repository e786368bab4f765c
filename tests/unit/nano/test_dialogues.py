"""The conversations that kakeya-nano is made of: repeatable, right, and written as its chat template writes them."""

import json
import re
from itertools import islice

import pytest
from transformers import AutoTokenizer

import kakeya_nano
from nano_training.corpus import THOUGHT_KINDS, THOUGHT_WEIGHT, Encoder, Sequence, seeded, sequence
from nano_training.dialogues import tools
from nano_training.dialogues.arithmetic import MAX_FACTOR, MAX_NUMBER, problem
from nano_training.dialogues.conversation import Conversation
from nano_training.dialogues.facts import unknown_answer
from nano_training.dialogues.message import Exchange, Message, system_text, tool_call, written
from nano_training.dialogues.quoting import edit

NUM_CONVERSATIONS = 50
NUM_EXCHANGES = 40
SOLVED = re.compile(r"(\d+) ([-+*]) (\d+) = (\d+)")
EDITED = re.compile(r"(?i:(Replace|Change|Write)) (?P<old>\w+) (with|to|instead of) (?P<new>\w+)( in| from)?: ")
COMPUTE = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


def exchanges() -> list[list[Exchange]]:
    return [
        list(islice(Conversation(seeded(7, "tests", number)).exchanges(), NUM_EXCHANGES))
        for number in range(NUM_CONVERSATIONS)
    ]


@pytest.fixture(scope="module")
def tokenizer() -> AutoTokenizer:
    return AutoTokenizer.from_pretrained(kakeya_nano.directory())


@pytest.fixture(scope="module")
def encode(tokenizer: AutoTokenizer) -> Encoder:
    return Encoder(tokenizer.backend_tokenizer)


def test_a_conversation_follows_from_its_seed_alone(encode: Encoder) -> None:
    first, again, other = (drawn(encode, split="train", number=number) for number in (1, 1, 2))
    assert first.ids.tolist() == again.ids.tolist()
    assert first.ids.tolist() != other.ids.tolist()
    assert first.ids.tolist() != drawn(encode, split="held out", number=1).ids.tolist()


def test_all_kinds_are_drawn() -> None:
    kinds = {exchange.kind for conversation in exchanges() for exchange in conversation}
    assert kinds == {
        "system", "small talk", "arithmetic", "tell", "recall", "unknown", "quote", "edit", "list", "name some", "json",
        "knowledge", "tool",
    }  # fmt: skip


def test_sums_are_right() -> None:
    texts = [e.messages[-1].text for conversation in exchanges() for e in conversation if e.kind == "arithmetic"]
    solved = [match for text in texts for match in SOLVED.findall(text)]
    assert len(solved) > len(texts) > 100
    assert all(COMPUTE[operator](int(a), int(b)) == int(result) for a, operator, b, result in solved)


def test_problems_stay_in_their_range() -> None:
    random = seeded(7, "tests", 0)
    for each in (problem(random) for _ in range(2_000)):
        most = MAX_FACTOR if each.operator == "*" else MAX_NUMBER
        assert 0 <= each.left <= most
        assert 0 <= each.right <= most
        assert each.result >= 0


def test_what_is_asked_was_told_before_and_what_is_unknown_was_not() -> None:
    num_asked = 0
    for conversation in exchanges():
        known: set[str] = set()
        for exchange in conversation:
            assert not known & set(exchange.told)
            known |= set(exchange.told)
            if exchange.kind == "unknown":
                assert exchange.messages[-1].text == unknown_answer()
            if exchange.asked is not None:
                assert exchange.asked in known
                num_asked += 1
    assert num_asked > 300


def test_the_answer_to_a_question_is_the_fact_s_and_an_unknown_question_no_known_fact_s() -> None:
    num_unknown = 0
    for number in range(NUM_CONVERSATIONS):
        conversation = Conversation(seeded(7, "tests", number))
        for exchange in islice(conversation.exchanges(), NUM_EXCHANGES):
            if exchange.asked is not None:
                fact = conversation.known[exchange.asked]
                assert fact.value in exchange.messages[-1].text
                assert exchange.messages[-1].text == fact.answer
            if exchange.kind == "unknown":
                asked = {
                    question.lower().rstrip(".?!") for fact in conversation.known.values() for question in fact.asked
                }
                assert exchange.messages[0].text.lower().rstrip(".?!") not in asked
                num_unknown += 1
    assert num_unknown > 10


def test_edits_are_clear_and_change_something() -> None:
    random, num_checked = seeded(7, "tests", 0), 0
    for question, answer in (edit(random) for _ in range(2_000)):
        found = EDITED.match(question.text)
        if found:
            text = question.text[found.end() :].rstrip(".").split()
            old, new = found["old"], found["new"]
            if found[0].startswith(("Write", "write")):
                old, new = new, old
            assert text.count(old) == 1
            assert new not in text
            assert answer.text.split() == [new if word == old else word for word in text]
            num_checked += 1
    assert num_checked > 500


def test_json_and_tool_calls_are_valid() -> None:
    num_checked = 0
    for conversation in exchanges():
        for exchange in conversation:
            if exchange.kind == "json":
                json.loads(exchange.messages[-1].text)
                num_checked += 1
            if exchange.kind == "tool":
                call = exchange.messages[1].text.removeprefix("<tool_call>").removesuffix("</tool_call>")
                assert {"name", "arguments"} == set(json.loads(call))
                num_checked += 1
    assert num_checked > 100


def test_conversations_are_written_as_the_chat_template_writes_them(tokenizer: AutoTokenizer) -> None:
    tool = tools.TOOLS[0]
    arguments = {"city": "Rome"}
    ours = [
        Message("system", system_text("Be kind.", [tool.signature])),
        Message("user", "What is the weather in Rome?"),
        Message("assistant", tool_call(tool.name, arguments)),
        Message("tool", '{"sky": "sunny"}'),
        Message("assistant", "It is sunny."),
    ]
    call = {"type": "function", "function": {"name": tool.name, "arguments": arguments}}
    theirs = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "What is the weather in Rome?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": '{"sky": "sunny"}'},
        {"role": "assistant", "content": "It is sunny."},
    ]
    rendered = tokenizer.apply_chat_template(theirs, tools=[tool.signature], tokenize=False)
    assert rendered == "".join(piece.text for piece in written(ours))


def test_tokens_cut_by_piece_are_those_of_the_whole_text(tokenizer: AutoTokenizer, encode: Encoder) -> None:
    for conversation in exchanges()[:10]:
        pieces = [piece.text for exchange in conversation for piece in written(exchange.messages)]
        whole = tokenizer.encode("".join(pieces), add_special_tokens=False)
        assert [token for piece in pieces for token in encode(piece)] == whole


def test_answers_are_found_in_the_tokens(tokenizer: AutoTokenizer, encode: Encoder) -> None:
    made = drawn(encode, num_tokens=600)
    assert len(made.ids) == len(made.weights) == 600
    for answer in made.answers:
        assert tokenizer.decode(made.ids[answer.end - 1]) == "<|im_end|>"
        weight = THOUGHT_WEIGHT if answer.kind in THOUGHT_KINDS else 1
        assert set(made.weights[answer.start : answer.end]) == {weight}
    inside = sum(answer.end - answer.start for answer in made.answers)
    assert inside <= (made.weights >= 1).sum() < 600


def drawn(encode: Encoder, *, split: str = "train", number: int = 0, num_tokens: int = 300) -> Sequence:
    return sequence(seeded(7, split, number), encode, num_tokens)
