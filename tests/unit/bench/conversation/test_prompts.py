"""What is said in a bench, and that it can be said again."""

import re
from collections import Counter
from itertools import islice
from pathlib import Path
from statistics import mean

import pytest

from kakeya_bench.conversation import prompts
from kakeya_bench.conversation.prompts import NoPrompts, RandomTokens

NUM_MESSAGES = 500


def _said(path: Path | None = None, seed: int = 0, conversation: int = 0, count: int = NUM_MESSAGES) -> tuple[str, ...]:
    return tuple(islice(prompts.messages(path, seed=seed, conversation=conversation), count))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "prompts"


@pytest.mark.parametrize("is_of_file", [False, True])
def test_the_same_seed_says_the_same_and_each_conversation_something_else(file: Path, *, is_of_file: bool) -> None:
    file.write_text("\n".join(map(str, range(20))))
    path = file if is_of_file else None
    assert _said(path, 1, 2) == _said(path, 1, 2)
    assert len({_said(path, seed, conversation) for seed in (1, 11) for conversation in (1, 11)}) == 4


def test_messages_are_about_equally_long_throughout() -> None:
    """Else a turn that costs more would be one that says more."""
    for seed in range(3):
        messages = _said(seed=seed)
        tenths = [messages[start : start + NUM_MESSAGES // 10] for start in range(0, NUM_MESSAGES, NUM_MESSAGES // 10)]
        for length in (len, lambda message: len(message.split())):
            average = mean(map(length, messages))
            assert [mean(map(length, tenth)) for tenth in tenths] == pytest.approx([average] * 10, rel=0.02)
            assert 0.75 * average < min(map(length, messages)) <= max(map(length, messages)) < 1.25 * average


def test_every_kind_comes_equally_often_and_no_message_twice_in_a_while() -> None:
    longest_parts = {max(re.split(r"\{\w+\}", kind), key=len): kind for kind in prompts.KINDS}
    messages = _said()
    for start in range(0, NUM_MESSAGES - 50, 50):
        kinds = Counter(
            kind for message in messages[start : start + 50] for part, kind in longest_parts.items() if part in message
        )
        assert all(abs(kinds[kind] - 50 / len(prompts.KINDS)) < 2 for kind in prompts.KINDS), kinds
    assert len(set(messages)) > 0.97 * NUM_MESSAGES


def test_every_word_is_said_and_no_place_is_left_empty() -> None:
    text = " ".join(_said(count=2_000))
    assert "{" not in text
    for words in prompts.WORDS.values():
        assert [word for word in words if not re.search(rf"\b{word}", text)] == []


def test_random_tokens_are_of_the_vocabulary_and_the_same_again_whatever_is_answered() -> None:
    def said(seed: int, conversation: int, answer: int | None, vocab_size: int = 7) -> list[list[int]]:
        tokens = RandomTokens(50, vocab_size, seed=seed, conversation=conversation)
        return [tokens.next_turn(None), tokens.next_turn(answer)]

    first, second = said(1, 2, None)
    assert (len(first), {*first, *second}) == (50, set(range(7)))
    assert first != second
    assert said(1, 2, 5) == [first, second]
    assert len({tuple(said(seed, other, None, 50_000)[0]) for seed in (1, 11) for other in (1, 11)}) == 4


def test_messages_of_a_file_come_once_each_before_one_comes_again(file: Path) -> None:
    lines = [f"Grüße {number}" for number in range(20)]
    file.write_bytes("\n  \r\n".join(f"\t{line} \r" for line in lines).encode())
    messages = prompts.messages(file, seed=0, conversation=0)
    rounds = [tuple(islice(messages, 20)) for _ in range(5)]
    assert all(sorted(one) == sorted(lines) for one in rounds)
    assert len({*rounds, tuple(lines)}) == 6, "each in an order of its own"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", " holds no prompt: one a line"),
        (b" \n\n\t\n", " holds no prompt: one a line"),
        (b"\x89PNG\r\n\x1a\n", " is no text in UTF-8"),
        (None, ": No such file or directory"),
    ],
)
def test_a_file_without_messages_is_refused_before_the_first(file: Path, content: bytes | None, says: str) -> None:
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(NoPrompts) as raised:
        prompts.messages(file, seed=0, conversation=0)
    assert str(raised.value) == f"{file}{says}"
