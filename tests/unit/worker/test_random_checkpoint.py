"""The random checkpoint is lively, and the same wherever it is made."""

import filecmp
from pathlib import Path

import pytest
import torch

from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.operation import MAX_UNREAD_TOKENS
from tests.random_checkpoint import CONFIG, save_random_checkpoint
from tests.unit.worker.engine_calls import TIMEOUT, open_session, start_append, start_generate

NUM_GREEDY, MIN_DISTINCT = 256, 100


@pytest.mark.parametrize("num_tokens", [3, 40, 90])
def test_greedy_output_wanders(engine: Engine, num_tokens: int) -> None:
    open_session(engine)
    start_append(engine, 0, num_tokens).future.result(TIMEOUT)
    generated: list[int] = []
    while len(generated) < NUM_GREEDY:
        generate, tokens = start_generate(engine, num_tokens + len(generated), MAX_UNREAD_TOKENS)
        generate.future.result(TIMEOUT)
        generated += tokens.ids
    assert len(set(generated)) >= MIN_DISTINCT


def test_is_the_same_at_every_call(random_checkpoint: Path, tmp_path: Path) -> None:
    torch.manual_seed(1)  # somebody else's seed changes nothing
    again = save_random_checkpoint(tmp_path / "again")
    files = sorted(path.name for path in again.iterdir())
    assert files == ["config.json", "generation_config.json", "model.safetensors"]
    assert filecmp.cmpfiles(random_checkpoint, again, files, shallow=False) == (files, [], [])
    assert CONFIG["eos_token_id"] < CONFIG["vocab_size"]
