"""How held-out conversations are judged, without a model."""

from collections.abc import Iterator

import numpy as np
import pytest
from tokenizers import Tokenizer

import kakeya_nano
from kakeya_bench.quality.material.script import Feed
from kakeya_bench.statistics.share import NONE, Share
from nano_training.corpus import Encoder
from nano_training.dialogues.message import Exchange, exchange
from nano_training.held_out import MAX_ANSWER_TOKENS, Answer, conversation, is_kept, shares
from nano_training.shape import MAX_POSITIONS, VOCAB_SIZE
from nano_training.tokenizer import end_of_turn

CALL = '<tool_call>\n{"name": "get_time", "arguments": {"city": "Rome"}}\n</tool_call>'


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(kakeya_nano.directory() / "tokenizer.json"))


def marks(kind: str, expected: str, said: str, *, ended: bool = True, distance: int | None = None) -> dict[str, bool]:
    return dict(Answer(kind, expected, said, ended, distance).marks())


def test_an_answer_is_right_word_for_word_and_only_if_it_ends() -> None:
    assert marks("arithmetic", "1 + 1 = 2.", "1 + 1 = 2.") == {"ends its turn": True, "arithmetic": True}
    assert marks("arithmetic", "1 + 1 = 2.", "1 + 1 = 3.")["arithmetic"] is False
    assert marks("arithmetic", "1 + 1 = 2.", "1 + 1 = 2.", ended=False) == {"ends its turn": False, "arithmetic": False}


def test_small_talk_has_no_right_answer() -> None:
    assert marks("small talk", "Hello!", "Hi!") == {"ends its turn": True}


def test_recall_is_judged_by_distance_as_well() -> None:
    assert marks("recall", "Your name is Leo.", "Your name is Leo.", distance=65) == {
        "ends its turn": True,
        "recall": True,
        "recall to  128": True,
    }


@pytest.mark.parametrize(("said", "valid"), [('{"a": 2}', True), ("[1]", False), ("7", False), ('{"a": ', False)])
def test_json_is_valid_where_it_is_of_the_kind_that_was_asked_for(said: str, valid: bool) -> None:
    assert marks("json", '{"a": 1}', said)["valid JSON"] is valid


@pytest.mark.parametrize(
    ("said", "valid"),
    [
        (CALL, True),
        (CALL.replace("Rome", "Oslo"), True),
        (f"Well. {CALL}", False),
        (CALL.removesuffix("\n</tool_call>"), False),
        ("<tool_call>\n{}\n</tool_call>", False),
        ("<tool_call>\n[]\n</tool_call>", False),
        ("It is late.", False),
    ],
)
def test_a_tool_call_is_one_call_and_nothing_else(said: str, valid: bool) -> None:
    assert marks("tool", CALL, said)["valid tool call"] is valid


def test_shares_count_by_mark() -> None:
    found = shares([Answer("quote", "a", "a", True), Answer("quote", "a", "b", True)])
    assert found == {"ends its turn": Share(2, 2), "quote": Share(1, 2)}


def test_a_promise_is_kept_by_enough_answers_only() -> None:
    assert is_kept(Share(19, 20), 0.95)
    assert not is_kept(Share(18, 20), 0.95)
    assert not is_kept(Share(19, 19), 0.95)
    assert not is_kept(NONE, 0.0)


def test_the_model_s_own_answers_are_the_history(tokenizer: Tokenizer) -> None:
    """What is fed is what was drawn of the user, and of the assistant what the model said, with one end each."""
    end = end_of_turn(tokenizer)
    said = ["No.", "Yes."]
    fed, answers = played(tokenizer, iter([exchange("One?", "1."), exchange("Two?", "2.")]), said)
    turns = [f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n" for q in ("One?", "Two?")]
    text = tokenizer.decode(fed, skip_special_tokens=False)
    assert text == f"{turns[0]}No.<|im_end|>\n{turns[1]}Yes."  # the last end is not fed any more
    assert fed.count(end) == 3
    assert [(each.expected, each.said, each.ended) for each in answers] == [("1.", "No.", True), ("2.", "Yes.", True)]


def test_an_answer_without_end_is_cut_off_and_ended(tokenizer: Tokenizer) -> None:
    endless = "word " * (MAX_ANSWER_TOKENS + 50)
    fed, answers = played(tokenizer, iter([exchange("One?", "1."), exchange("Two?", "2.")]), [endless, "Yes."])
    assert [each.ended for each in answers] == [False, True]
    word = tokenizer.encode(" word").ids
    assert sum(fed[n : n + len(word)] == word for n in range(len(fed))) <= MAX_ANSWER_TOKENS
    assert f"{answers[0].said}<|im_end|>" in tokenizer.decode(fed, skip_special_tokens=False)


def test_it_ends_within_the_model_s_positions(tokenizer: Tokenizer) -> None:
    def for_ever() -> Iterator[list]:
        while True:
            yield exchange("Say it again, please: the old owl sings near the barn", "the old owl sings near the barn")

    fed, answers = played(tokenizer, for_ever(), ["the old owl sings near the barn"] * 100)
    assert 0.9 * MAX_POSITIONS < len(fed) < MAX_POSITIONS
    assert all(each.ended for each in answers)


def played(tokenizer: Tokenizer, drawn: Iterator[list], said: list[str]) -> tuple[list[int], list[Answer]]:
    """Plays a conversation with a model that says these answers; what it was fed, and the answers."""
    end = end_of_turn(tokenizer)
    answers = [[*tokenizer.encode(text).ids, end] for text in said]
    script = conversation((Exchange("quote", messages) for messages in drawn), Encoder(tokenizer), tokenizer)
    fed: list[int] = []
    feed: Feed = next(script)
    at = 0
    while True:
        fed += feed.tokens
        if len(feed.tokens) > 1:
            answer, at = answers.pop(0), 0
        logits = np.zeros(VOCAB_SIZE, np.float32)
        logits[answer[at]] = 1
        at += 1
        try:
            feed = script.send(logits)
        except StopIteration as ended:
            return fed, ended.value
