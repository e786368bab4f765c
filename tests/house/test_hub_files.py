"""What `kakeya models pull` brings here is all that is loaded of a model, by workers and for texts of its tokens."""

from kakeya.text import tokenizer_files
from kakeya_worker.hub import files, pull


def test_a_model_that_is_pulled_has_the_files_of_its_tokenizer() -> None:
    assert files.OF_A_TOKENIZER == tokenizer_files._WANTED
    assert {*files.OF_A_CHECKPOINT, *files.OF_A_TOKENIZER} == {*pull.WANTED}
