"""Scripts on a verifier: what is taken back leaves nothing behind, what is forgotten is not recalled."""

from pathlib import Path
from random import Random
from typing import Any, cast

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from kakeya_bench.quality.material import dialogue
from kakeya_bench.quality.material.chat_template import ChatTemplate
from kakeya_bench.quality.material.dialogue import Losses, Text
from kakeya_bench.quality.material.script import Feed, Logits, Script, answer
from kakeya_bench.quality.measure.measurement import Asked
from kakeya_bench.quality.measure.stage import Stage
from kakeya_bench.quality.plan import ANSWER_TOKENS, Configuration, Kind
from kakeya_bench.quality.result.figures import multi_turn, perplexity, recall
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.verifier import Verifier
from kakeya_worker.torch_backend import TorchVerifier
from tests.unit.bench.quality.quality_checkpoint import Oracle

CHUNK = 80
DISTANCES = (48, 64, 90, 128, 160, 256)


@pytest.fixture
def stage(directory: Path) -> Stage:
    oracle = Oracle(Tokenizer.from_file(str(directory / "tokenizer.json")))
    return Stage(cast(Verifier, oracle), LaneGeometry(sink=4, window=512, chunk=CHUNK), num_lanes=5)


def kept(window: int) -> Configuration:
    return Configuration("float32", "sink-window", 4, window)


def measured(stage: Stage, template: ChatTemplate, configuration: Configuration, *, kind: Kind) -> dict[str, Any]:
    in_system = kind is Kind.PINNED
    dialogues = [dialogue.one_fact(template, Random(seed), DISTANCES, in_system=in_system) for seed in range(12)]
    assert max(each.longest_probe for each in dialogues) <= CHUNK
    if in_system:
        configuration = configuration.pinned(max(each.num_system_tokens for each in dialogues))
    retention = configuration.retention(stage.geometry)
    outcomes = stage.play([(each.script(template, DISTANCES[-1]), retention) for each in dialogues])
    return recall(Asked(kind, configuration, [outcome for some in outcomes for outcome in some]), enough=12)


@pytest.mark.parametrize("window", [100, 150])
def test_a_fact_is_recalled_as_long_as_it_is_seen(stage: Stage, template: ChatTemplate, window: int) -> None:
    found = measured(stage, template, kept(window), kind=Kind.RECALL)
    assert found["inside"]["share"] == 1
    assert found["inside"]["num"] >= 12
    assert (found["lowest_inside"], found["lowest_beyond"], found["stays_fallen"]) == (1, 0, True)
    for at in found["by_distance"]:
        if at["distance"] + ANSWER_TOKENS <= window:
            assert at["share"] == 1
        if at["distance"] >= window + 30:
            assert at["share"] == 0
    assert window - ANSWER_TOKENS < found["falls_at"] <= window * 1.5


def test_a_retention_that_forgets_the_fact_cannot_recall_it_and_one_that_forgets_nothing_can(
    stage: Stage, template: ChatTemplate
) -> None:
    forgets, keeps = (measured(stage, template, kept(window), kind=Kind.RECALL) for window in (24, 512))
    assert (forgets["anywhere"]["share"], forgets["falls_at"]) == (0, forgets["by_distance"][0]["distance"])
    assert (keeps["anywhere"]["share"], keeps["falls_at"]) == (1, None)
    assert forgets["anywhere"]["num"] == keeps["anywhere"]["num"] >= 50


def test_a_pinned_fact_is_recalled_anywhere(stage: Stage, template: ChatTemplate) -> None:
    found = measured(stage, template, kept(110), kind=Kind.PINNED)
    assert found["sink"] > 15
    assert (found["anywhere"]["share"], found["lowest_beyond"]) == (1, 1)


def test_several_facts_are_recalled_while_they_are_seen(stage: Stage, template: ChatTemplate) -> None:
    dialogues = [dialogue.several_facts(template, Random(seed), 300) for seed in range(6)]

    def found(window: int) -> dict[str, Any]:
        retention = kept(window).retention(stage.geometry)
        outcomes = stage.play([(each.script(template, 0), retention) for each in dialogues])
        return multi_turn(Asked(Kind.MULTI_TURN, kept(window), [outcome for some in outcomes for outcome in some]))

    whole, part = found(512), found(180)
    assert (whole["in_sight"]["hits"], whole["in_sight"]["num"], whole["out_of_sight"]["num"]) == (30, 30, 0)
    assert part["out_of_sight"]["share"] == 0
    assert part["out_of_sight"]["num"] >= 6


@pytest.fixture
def model(checkpoint: Path) -> TorchVerifier:
    return TorchVerifier(str(checkpoint), weights="float32", kv_dtype="auto", num_threads=1, cache_directory=None)


def test_what_is_taken_back_leaves_nothing_behind(model: TorchVerifier) -> None:
    random = Random(3)
    stretches = [tuple(random.randrange(1000) for _ in range(70)) for _ in range(4)]
    question = tuple(random.randrange(1000) for _ in range(CHUNK - ANSWER_TOKENS))
    stage = Stage(model, LaneGeometry(sink=4, window=60, chunk=CHUNK), num_lanes=3)
    retention = kept(60).retention(stage.geometry)

    def plain() -> Script[Logits]:
        for stretch in stretches[:-1]:
            yield Feed(stretch, wants_logits=False)
        return (yield Feed(stretches[-1]))

    def with_questions() -> Script[Logits]:
        length, logits = 0, np.empty(0, np.float32)
        for stretch in stretches:
            logits = yield Feed(stretch, start=length)
            length += len(stretch)
            said = yield from answer(question, (), start=length)
            assert len(said) == ANSWER_TOKENS
        return logits

    def keeping_the_questions() -> Script[Logits]:
        for stretch in stretches[:-1]:
            yield Feed(stretch, wants_logits=False)
            yield from answer(question, ())
        return (yield Feed(stretches[-1]))

    scripts = (plain(), with_questions(), keeping_the_questions())
    expected, taken_back, not_taken_back = stage.play([(script, retention) for script in scripts])
    largest = float(np.abs(expected).max())
    assert np.abs(taken_back - expected).max() <= 1e-4 * largest
    assert np.abs(not_taken_back - expected).max() > 1e-2 * largest


def test_scripts_end_in_their_order_however_many_lanes_there_are(stage: Stage) -> None:
    def script(number: int) -> Script[int]:  # some end before they have begun
        for _ in range(7 * number % 5):
            yield Feed((number,), wants_logits=False)
        return number

    retention = kept(60).retention(stage.geometry)
    ended: list[int] = []
    assert stage.play([(script(number), retention) for number in range(23)], ended.append) == [*range(23)]
    assert (ended, ended[-1]) == (sorted(ended), 23)


def losses_of(model: TorchVerifier, texts: list[Text], window: int) -> list[Losses]:
    stage = Stage(model, LaneGeometry(sink=4, window=120, chunk=CHUNK), num_lanes=2)
    return stage.play([(text.script(1000), kept(window).retention(stage.geometry)) for text in texts])


def test_perplexity_inside_the_window_is_that_of_full_attention(model: TorchVerifier, checkpoint: Path) -> None:
    random = Random(4)
    tokens = [[random.randrange(1000) for _ in range(90)] for _ in range(2)]
    reference = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    with torch.inference_mode():
        logits = reference(torch.tensor(tokens)).logits  # [texts, tokens, vocab]
    expected = torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), torch.tensor(tokens)[:, 1:].flatten(), reduction="none"
    )
    texts = [Text(tuple(each), (False,) * 90) for each in tokens]
    losses = losses_of(model, texts, 100)
    np.testing.assert_allclose(np.concatenate(losses), expected.numpy(), rtol=1e-4, atol=1e-4)
    found = perplexity(kept(100), texts, losses, losses)
    assert found["whole"]["value"] == pytest.approx(float(expected.double().mean().exp()), rel=1e-4)
    assert found["past_the_wrap"]["num_tokens"] == 0


def test_perplexity_past_the_wrap_is_not(model: TorchVerifier) -> None:
    random = Random(5)
    text = Text(tuple(random.randrange(1000) for _ in range(120)), (False,) * 120)
    (narrow,), (wide,) = (losses_of(model, [text], window) for window in (30, 120))
    np.testing.assert_allclose(narrow[:34], wide[:34], rtol=1e-4)
    assert np.abs(narrow[40:] - wide[40:]).mean() > 1e-2
