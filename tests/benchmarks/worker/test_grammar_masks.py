from kakeya_shared import installed_models
from tests.benchmarks.worker.grammar_masks import Choices, Times

_TOKENIZER = installed_models.directory("kakeya-nano") / "tokenizer.json"


def test_each_token_of_an_answer_is_timed() -> None:
    choices, times, texts = Choices(_TOKENIZER, 2048), Times(), Times()
    for number in range(3):
        choices.answer(choices.of_schema(number), number, times)
    choices.answer(choices.of_text(0), 0, texts)
    choices.close()
    assert len(times.masks) == len(times.free) == len(times.held) > 3
    assert times.figures["tokens"] == len(times.masks)
    assert all(value > 0 for name, value in times.figures.items() if name != "more_p50_us")
    assert len(texts.held) > 3
