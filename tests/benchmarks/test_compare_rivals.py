"""What `make bench-compare` asks of the bench; that the bench does it, the tests of the bench show."""

from pathlib import Path

import pytest

from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya_bench.compare.settings import CompareSettings
from kakeya_bench.rivals.checkpoint import SMALL
from tests import word_tokenizer
from tests.benchmarks import compare_rivals
from tests.benchmarks.compare_rivals import FULL_LLAMA, LLAMA, RESPONSES, SHIM, TRANSFORMERS, RivalsSettings

URL = "http://127.0.0.1:1/v1"


def parsed(asked: RivalsSettings, *names: str) -> CompareSettings:
    model = ",model=m,tokenizer=t"
    about = {SHIM: f",api=chat{model},messages=617", RESPONSES: f",api=responses{model}"}
    rivals = [f"{name}={URL}{about.get(name, '')}" for name in names]
    return CompareSettings.parse(compare_rivals.flags(asked, "127.0.0.1:2", rivals, Path("model")))


def test_each_rival_is_asked_in_its_own_way() -> None:
    found = parsed(RivalsSettings.parse([]), SHIM, RESPONSES, TRANSFORMERS, LLAMA, FULL_LLAMA)
    assert (found.turns, found.new_tokens, found.max_tokens) == (200, 100, 16)
    assert found.marks == (1, 10, 50, 200)
    assert found.at_least == {TRANSFORMERS: 20.0}
    assert found.at_most == {SHIM: (1.1, 5.0), RESPONSES: (1.1, 5.0)}
    assert (found.goes_on, found.cpu_at_most) == ((SHIM, RESPONSES), {SHIM: 15.0})
    assert all(rival.fields for rival in found.rival)


def test_some_alone() -> None:
    asked = RivalsSettings.parse(["--rivals", SHIM])
    assert (asked.rivals, asked.plays_llama) == ((SHIM,), False)
    assert parsed(asked, SHIM).at_least == {}
    both = RivalsSettings.parse(["--rivals", f"{TRANSFORMERS},{LLAMA}"])
    assert both.plays_llama
    assert parsed(both, TRANSFORMERS, LLAMA).goes_on == ()


def test_a_rival_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        RivalsSettings.parse(["--rivals", "vLLM"])
    assert "--rivals: there is no 'vLLM', but http shim, http responses, tr" in capsys.readouterr().err


def test_contexts_have_room_for_the_conversation() -> None:
    assert [compare_rivals.rounded_up(number) for number in (1, 256, 257, 23_200)] == [256, 256, 512, 23_296]


def test_each_token_of_an_answer_is_a_text(tmp_path: Path) -> None:
    size = SMALL["vocab_size"]
    tokenizer = ChatTokenizer(str(word_tokenizer.save(tmp_path / "tokenizer", size)))
    assert tokenizer.num_token_ids == size
    assert [tokenizer.decode([token_id]) for token_id in (0, 17)] == ["<0>", "<17>"]
    words = [17, 3, 3, size - 9]
    assert tokenizer.encode(tokenizer.decode(words)) == words
    biased = [int(token_id) for token_id in word_tokenizer.endless(size)]
    assert min(biased) == size - 5
    assert "".join(tokenizer.decode([each], special_tokens=True) for each in sorted(biased)) == (
        "<|endoftext|><|im_start|><|im_end|><think></think>"
    )
    assert set(tokenizer.eos_token_ids) <= set(biased)
    said = [{"role": "user", "content": tokenizer.decode(words)}]
    assert tokenizer.decode(tokenizer.prompt(said), special_tokens=True) == (
        "<|im_start|> user <17> <3> <3> <31991> <|im_end|> <|im_start|> assistant"
    )
