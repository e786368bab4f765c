"""How kakeya-nano is trained, on a few steps of it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

import kakeya_nano
from kakeya_worker.torch_backend import TorchVerifier
from nano_training.agreement import agreement
from nano_training.checkpoint import write_checkpoint
from nano_training.corpus import seeded, text_of
from nano_training.muon import Muon
from nano_training.saved_steps import SavedSteps
from nano_training.shape import VOCAB_SIZE
from nano_training.tokenizer import train_tokenizer
from nano_training.training import Phase, Progress, Recipe, Trainer, new_model, train
from tests.unit.nano.one_lane import logits_after

pytestmark = pytest.mark.heavy  # nothing that is installed trains; what ships is tested in test_shipped.py
RECIPE = Recipe(seed=3, num_threads=1, phases=(Phase(10, 64, 4), Phase(2, 128, 2)))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(kakeya_nano.directory() / "tokenizer.json"))


def test_the_loss_falls_and_progress_is_told(tokenizer: Tokenizer) -> None:
    model, told = new_model(3, eos_token_id=1), list[Progress]()
    train(Trainer(model, model, RECIPE), tokenizer, RECIPE, told.append, report_steps=4)
    assert [progress.step for progress in told] == [4, 8, 12]
    assert told[0].answer_loss > told[1].answer_loss + 0.5
    assert all(progress.tokens_per_second > 0 for progress in told)


def test_the_same_seed_trains_the_same_model(tokenizer: Tokenizer) -> None:
    first, again = trained(tokenizer), trained(tokenizer)
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_a_run_that_was_stopped_goes_on_to_the_same_model(tokenizer: Tokenizer, tmp_path: Path) -> None:
    saved, told = SavedSteps(tmp_path / "new" / "unfinished.pt", every_steps=3), list[Progress]()

    def stop_at_eleven(progress: Progress) -> None:
        if progress.step == 11:
            raise KeyboardInterrupt

    model = new_model(3, eos_token_id=1)
    with pytest.raises(KeyboardInterrupt):
        train(Trainer(model, model, RECIPE), tokenizer, RECIPE, stop_at_eleven, report_steps=1, saved=saved)
    model = new_model(4, eos_token_id=1)
    train(Trainer(model, model, RECIPE), tokenizer, RECIPE, told.append, report_steps=1, saved=saved)
    assert [progress.step for progress in told] == [10, 11, 12]
    whole = trained(tokenizer)
    assert all(torch.equal(whole[name], parameter) for name, parameter in model.named_parameters())
    saved.remove()
    assert list(saved.path.parent.iterdir()) == []


def test_what_was_saved_by_another_recipe_or_other_code_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    saved, model = SavedSteps(tmp_path / "unfinished.pt", every_steps=12), new_model(3, eos_token_id=1)
    train(Trainer(model, model, RECIPE), tokenizer, RECIPE, lambda _: None, saved=saved)
    with pytest.raises(ValueError, match="remove it to start anew"):
        train(Trainer(model, model, RECIPE), tokenizer, replace(RECIPE, seed=4), lambda _: None, saved=saved)
    torch.save(torch.load(saved.path) | {"source": "other"}, saved.path)
    with pytest.raises(ValueError, match="remove it to start anew"):
        train(Trainer(model, model, RECIPE), tokenizer, RECIPE, lambda _: None, saved=saved)


def test_muon_steps_by_nearly_orthogonal_matrices() -> None:
    matrices = [torch.nn.Parameter(torch.zeros(24, 40)) for _ in range(3)] + [torch.nn.Parameter(torch.zeros(30, 16))]
    chance = torch.Generator().manual_seed(0)
    gradients = [torch.randn(matrix.shape, generator=chance) for matrix in matrices]
    for matrix, gradient in zip(matrices, gradients, strict=True):
        matrix.grad = gradient.clone()
    muon = Muon(matrices, weight_decay=0.0)
    muon.learning_rate = 1.0
    muon.step()
    for matrix, gradient in zip(matrices, gradients, strict=True):
        values = torch.linalg.svdvals(matrix.detach()) / (0.2 * max(matrix.shape) ** 0.5)
        assert 0.6 < values.min() <= values.max() < 1.3
        assert (matrix * gradient).sum() < 0  # downhill
        assert matrix.grad is None


def test_agreement_counts_answers_by_kind_and_distance(tokenizer: Tokenizer) -> None:
    shares = agreement(new_model(3, eos_token_id=1).eval(), tokenizer, seed=3, num_sequences=2)
    assert {"arithmetic", "recall", "recall to  256"} <= set(shares)
    assert shares["recall"].num == sum(share.num for kind, share in shares.items() if kind.startswith("recall to"))
    assert shares["recall"].num_right == 0  # of a model that knows nothing


@pytest.mark.parametrize(("shift", "share"), [(1, 1.0), (0, 0.0)])
def test_agreement_is_that_of_the_next_token(tokenizer: Tokenizer, shift: int, share: float) -> None:
    class Knowing:
        """Says of each position the token that stands `shift` further on."""

        def __call__(self, input_ids: torch.Tensor) -> SimpleNamespace:
            known = torch.roll(input_ids, -shift, dims=1)
            return SimpleNamespace(logits=torch.nn.functional.one_hot(known, VOCAB_SIZE))

    shares = agreement(Knowing(), tokenizer, seed=3, num_sequences=2)
    assert {kind: found.num_right / found.num for kind, found in shares.items()} == dict.fromkeys(shares, share)


def test_a_checkpoint_means_the_same_to_transformers_and_to_the_worker(tokenizer: Tokenizer, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, tokenizer, new_model(3, eos_token_id=1).state_dict())
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = tokenizer.encode("Hello! How are you?").ids
    with torch.no_grad():
        expected = theirs(input_ids=torch.tensor([ids])).logits[0, -1].numpy()
    found = last_logits(tmp_path, ids)
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


def test_the_tokenizer_has_one_token_for_a_tag_and_none_for_what_it_never_saw() -> None:
    tokenizer = train_tokenizer(text_of(seeded(1, "tests", number), 10) for number in range(50))
    assert tokenizer.get_vocab_size() <= VOCAB_SIZE
    for tag in ("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"):
        assert len(tokenizer.encode(tag).ids) == 1
    assert tokenizer.decode(tokenizer.encode("žluťoučký 12+7").ids) == "žluťoučký 12+7"


def trained(tokenizer: Tokenizer) -> dict[str, torch.Tensor]:
    model = new_model(3, eos_token_id=1)
    train(Trainer(model, model, RECIPE), tokenizer, RECIPE, lambda _: None)
    return dict(model.named_parameters())


def last_logits(directory: Path, ids: list[int]) -> np.ndarray:
    verifier = TorchVerifier(str(directory), weights="float32", kv_dtype="auto", num_threads=1, cache_directory=None)
    return logits_after(verifier, ids)
