"""What is said in a bench, and that it can be said again."""

import re
from collections import Counter
from itertools import islice
from pathlib import Path
from statistics import mean

import pytest

from kakeya.bench import phrases, prompts
from kakeya.bench.prompts import NoPrompts, Prompts, RandomTokens, Texts
from kakeya.text.chat_tokenizer import ChatTokenizer

NUM_MESSAGES = 500


def _written(seed: int = 0, conversation: int = 0, count: int = NUM_MESSAGES) -> list[str]:
    return list(islice(prompts.written(seed=seed, conversation=conversation), count))


def _kind(message: str) -> str:
    """By its longest part that is not drawn."""
    (kind,) = (kind for kind in phrases.KINDS if max(re.split(r"\{\w+\}", kind), key=len) in message)
    return kind


def test_the_same_seed_writes_the_same_messages() -> None:
    assert _written(seed=1, conversation=2) == _written(seed=1, conversation=2)


@pytest.mark.parametrize(("seed", "conversation"), [(0, 1), (1, 0), (1, 1), (0, 10), (11, 0)])
def test_another_seed_and_another_conversation_write_others(seed: int, conversation: int) -> None:
    others = [
        message for first, message in zip(_written(), _written(seed, conversation), strict=True) if first != message
    ]
    assert len(others) > 0.9 * NUM_MESSAGES  # fmt: skip


def test_conversations_are_told_apart_from_seeds() -> None:
    assert _written(seed=1, conversation=11) != _written(seed=11, conversation=1)


def test_messages_are_about_equally_long_throughout() -> None:
    """Else a turn that costs more would be one that says more."""
    for seed in range(3):
        messages = _written(seed)
        tenths = [messages[start : start + NUM_MESSAGES // 10] for start in range(0, NUM_MESSAGES, NUM_MESSAGES // 10)]
        for length in (len, lambda message: len(message.split())):
            average = mean(map(length, messages))
            assert [mean(map(length, tenth)) for tenth in tenths] == pytest.approx([average] * 10, rel=0.02)
            assert 0.75 * average < min(map(length, messages)) <= max(map(length, messages)) < 1.25 * average


def test_every_kind_comes_equally_often_throughout() -> None:
    messages = _written()
    for start in range(0, NUM_MESSAGES - 50, 50):
        counts = Counter(map(_kind, messages[start : start + 50]))
        expected = 50 / len(phrases.KINDS)
        assert all(expected - 2 < counts[kind] < expected + 2 for kind in phrases.KINDS), counts


def test_messages_are_seldom_said_twice() -> None:
    assert len(set(_written())) > 0.97 * NUM_MESSAGES


def test_every_word_is_said_and_no_place_is_left_empty() -> None:
    text = " ".join(_written(count=2_000))
    assert "{" not in text
    for words in phrases.WORDS.values():
        assert [word for word in words if not re.search(rf"\b{word}", text)] == []


def test_random_tokens_are_of_the_vocabulary() -> None:
    said = RandomTokens(50, 7, seed=0, conversation=0)
    turns = [said.next_turn(None), said.next_turn(3), said.next_turn(None)]
    assert [len(turn) for turn in turns] == [50] * 3
    assert {token_id for turn in turns for token_id in turn} == set(range(7))
    assert turns[0] != turns[1] != turns[2]


def test_random_tokens_are_the_same_for_the_same_seed() -> None:
    def said(seed: int, conversation: int) -> list[list[int]]:
        tokens = RandomTokens(20, 50_000, seed=seed, conversation=conversation)
        return [tokens.next_turn(None) for _ in range(3)]

    assert said(1, 2) == said(1, 2)
    assert len({tuple(said(seed, conversation)[0]) for seed in (1, 11) for conversation in (1, 11)}) == 4


def test_random_tokens_do_not_depend_on_the_answers() -> None:
    """So a run can be repeated where answers differ."""
    first, second = (RandomTokens(20, 50_000, seed=0, conversation=0) for _ in range(2))
    assert [first.next_turn(None), first.next_turn(1)] == [second.next_turn(7), second.next_turn(None)]


def test_texts_are_tokenized_as_a_chat(tokenizer: ChatTokenizer) -> None:
    said: Prompts = Texts(tokenizer, iter(["hello", "and", "more"]))
    (end,) = tokenizer.eos_token_ids
    cut_off = tokenizer.encode("x")[-1]
    turns = [said.next_turn(None), said.next_turn(end), said.next_turn(cut_off)]
    assert [tokenizer.decode(turn, special_tokens=True) for turn in turns] == [
        "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n",
        "\n<|im_start|>user\nand<|im_end|>\n<|im_start|>assistant\n",
        "<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n",
    ]


def test_messages_of_a_file_come_once_each_before_one_comes_again(tmp_path: Path) -> None:
    lines = [f"message {number}" for number in range(20)]
    file = tmp_path / "prompts"
    file.write_text("\n".join(lines))
    messages = prompts.of_file(file, seed=0, conversation=0)
    rounds = [list(islice(messages, 20)) for _ in range(5)]
    assert all(sorted(one) == sorted(lines) for one in rounds)
    assert len({tuple(one) for one in [*rounds, lines]}) == 6, "each in an order of its own"


def test_messages_of_a_file_are_the_same_for_the_same_seed(tmp_path: Path) -> None:
    file = tmp_path / "prompts"
    file.write_text("\n".join(map(str, range(20))))

    def said(seed: int, conversation: int) -> tuple[str, ...]:
        return tuple(islice(prompts.of_file(file, seed=seed, conversation=conversation), 50))

    assert said(1, 2) == said(1, 2)
    assert len({said(seed, conversation) for seed in (1, 11) for conversation in (1, 11)}) == 4


def test_blank_lines_of_a_file_say_nothing(tmp_path: Path) -> None:
    file = tmp_path / "prompts"
    file.write_bytes("\n  \r\n hello you \r\n\t\nGrüße\n\n".encode())
    assert set(islice(prompts.of_file(file, seed=0, conversation=0), 10)) == {"hello you", "Grüße"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", " holds no prompt: one a line"),
        (b" \n\n\t\n", " holds no prompt: one a line"),
        (b"\x89PNG\r\n\x1a\n", " is no text in UTF-8"),
        (None, ": No such file or directory"),
    ],
)
def test_a_file_without_messages_is_refused_before_the_first(tmp_path: Path, content: bytes | None, says: str) -> None:
    file = tmp_path / "prompts"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(NoPrompts) as raised:
        prompts.of_file(file, seed=0, conversation=0)
    assert str(raised.value) == f"{file}{says}"


def test_a_directory_holds_no_messages(tmp_path: Path) -> None:
    with pytest.raises(NoPrompts) as raised:
        prompts.of_file(tmp_path, seed=0, conversation=0)
    assert str(raised.value) == f"{tmp_path}: Is a directory"
