"""What `make bench-compare` asks of the bench; that the bench does it, the tests of the bench show."""

from pathlib import Path

from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya_bench.compare.settings import CompareSettings
from tests.benchmarks import compare_rivals
from tests.benchmarks.compare_rivals import FULL_LLAMA, LLAMA, SHIM, TRANSFORMERS, RivalsSettings


def test_each_rival_is_asked_in_its_own_way() -> None:
    asked = RivalsSettings.parse([])
    rivals = [f"{name}=http://127.0.0.1:1/v1" for name in (SHIM, TRANSFORMERS, LLAMA, FULL_LLAMA)]
    parsed = CompareSettings.parse(compare_rivals.flags(asked, "127.0.0.1:2", rivals, Path("model")))
    assert (parsed.turns, parsed.new_tokens, parsed.max_tokens) == (200, 100, 16)
    assert parsed.marks == (1, 10, 50, 200)
    assert parsed.at_least == {TRANSFORMERS: 20.0}
    assert all(rival.fields for rival in parsed.rival)


def test_contexts_have_room_for_the_conversation() -> None:
    assert [compare_rivals.rounded_up(number) for number in (1, 256, 257, 23_200)] == [256, 256, 512, 23_296]


def test_each_token_of_an_answer_is_a_text(tmp_path: Path) -> None:
    tokenizer = ChatTokenizer(str(compare_rivals.saved_tokenizer(tmp_path / "tokenizer")))
    assert tokenizer.num_token_ids == 32_000
    assert tokenizer.eos_token_ids == []
    assert [tokenizer.decode([token_id]) for token_id in (0, 17, 31_999)] == ["<0>", "<17>", "<31999>"]
