"""Scripts on a verifier: what is taken back leaves nothing behind, what is forgotten is not recalled."""

from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.quality import multi_turn, perplexity, recall
from kakeya_worker.quality.chat_template import ChatTemplate
from kakeya_worker.quality.configuration import Configuration
from kakeya_worker.quality.multi_turn import MultiTurn
from kakeya_worker.quality.perplexity import Text
from kakeya_worker.quality.recall import Recall
from kakeya_worker.quality.script import ANSWER_TOKENS, Feed, Logits, Script, answer
from kakeya_worker.quality.share import Share
from kakeya_worker.quality.stage import Stage
from kakeya_worker.torch_backend import TorchVerifier
from tests.unit.worker.quality_checkpoint import CHATML, Oracle, save_quality_checkpoint, save_tokenizer

CHUNK = 80
DISTANCES = (48, 64, 90, 128, 160, 256)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(path, CHATML)
    return path


@pytest.fixture(scope="module")
def template(directory: Path) -> ChatTemplate:
    return ChatTemplate(directory)


@pytest.fixture
def stage(directory: Path) -> Stage:
    oracle = Oracle(Tokenizer.from_file(str(directory / "tokenizer.json")))
    return Stage(oracle, LaneGeometry(sink=4, window=512, chunk=CHUNK), num_lanes=5)


def measured(stage: Stage, template: ChatTemplate, configuration: Configuration, told_by: str = "user") -> Recall:
    dialogues = [recall.write(template, Random(seed), DISTANCES, told_by) for seed in range(12)]
    assert max(dialogue.longest_probe for dialogue in dialogues) <= CHUNK
    if told_by == "system":
        configuration = configuration.pinned(max(dialogue.num_system_tokens for dialogue in dialogues))
    retention = configuration.retention(stage.geometry)
    outcomes = stage.play([(recall.script(dialogue, template), retention) for dialogue in dialogues])
    return recall.summarize(configuration, told_by, [outcome for some in outcomes for outcome in some], enough=12)


@pytest.mark.parametrize("window", [100, 150])
def test_a_fact_is_recalled_as_long_as_it_is_seen(stage: Stage, template: ChatTemplate, window: int) -> None:
    found = measured(stage, template, Configuration("float32", "sink-window", 4, window))
    assert found.inside.value == 1
    assert found.inside.num >= 12
    assert found.lowest_inside == 1
    assert found.lowest_beyond == 0
    assert found.stays_fallen
    for at in found.by_distance:
        if at.distance + ANSWER_TOKENS <= window:
            assert at.recalled.value == 1
        if at.distance >= window + 30:
            assert at.recalled.value == 0
    assert found.falls_at is not None
    assert window - ANSWER_TOKENS < found.falls_at <= window * 1.5


def test_a_retention_that_forgets_the_fact_cannot_recall_it(stage: Stage, template: ChatTemplate) -> None:
    found = measured(stage, template, Configuration("float32", "sink-window", 4, 24))
    assert found.anywhere == Share(0, found.anywhere.num)
    assert found.anywhere.num >= 50
    assert found.falls_at == found.by_distance[0].distance


def test_one_that_forgets_nothing_recalls_it_anywhere(stage: Stage, template: ChatTemplate) -> None:
    found = measured(stage, template, Configuration("float32", "sink-window", 4, 512))
    assert found.anywhere.value == 1
    assert found.falls_at is None


def test_a_pinned_fact_is_recalled_anywhere(stage: Stage, template: ChatTemplate) -> None:
    found = measured(stage, template, Configuration("float32", "sink-window", 4, 110), told_by="system")
    assert found.configuration.sink > 15
    assert found.anywhere.value == 1
    assert found.lowest_beyond == 1


def test_several_facts_are_recalled_while_they_are_seen(stage: Stage, template: ChatTemplate) -> None:
    dialogues = [multi_turn.write(template, Random(seed), 300) for seed in range(6)]

    def found(window: int) -> MultiTurn:
        configuration = Configuration("float32", "sink-window", 4, window)
        retention = configuration.retention(stage.geometry)
        answers = stage.play([(multi_turn.script(dialogue, template), retention) for dialogue in dialogues])
        return multi_turn.summarize(configuration, [answer for some in answers for answer in some])

    whole, part = found(512), found(180)
    assert (whole.in_sight, whole.out_of_sight) == (Share(30, 30), Share(0, 0))
    assert part.out_of_sight.value == 0
    assert part.out_of_sight.num >= 6


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_quality_checkpoint(tmp_path_factory.mktemp("models") / "random")


@pytest.fixture
def model(checkpoint: Path) -> TorchVerifier:
    return TorchVerifier(str(checkpoint), weights="float32", kv_dtype="auto", num_threads=1, cache_directory=None)


def test_what_is_taken_back_leaves_nothing_behind(model: TorchVerifier) -> None:
    random = Random(3)
    stretches = [tuple(random.randrange(1000) for _ in range(70)) for _ in range(4)]
    question = tuple(random.randrange(1000) for _ in range(CHUNK - ANSWER_TOKENS))
    stage = Stage(model, LaneGeometry(sink=4, window=60, chunk=CHUNK), num_lanes=3)
    retention = Configuration("float32", "sink-window", 4, 60).retention(stage.geometry)

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
    expected, taken_back, kept = stage.play([(script, retention) for script in scripts])
    largest = float(np.abs(expected).max())
    assert np.abs(taken_back - expected).max() <= 1e-4 * largest
    assert np.abs(kept - expected).max() > 1e-2 * largest


def test_scripts_end_in_their_order_however_many_lanes_there_are(stage: Stage, template: ChatTemplate) -> None:
    def script(number: int) -> Script[int]:  # some end before they have begun
        for _ in range(7 * number % 5):
            yield Feed((number,), wants_logits=False)
        return number

    retention = Configuration("float32", "sink-window", 4, 60).retention(stage.geometry)
    ended: list[int] = []
    assert stage.play([(script(number), retention) for number in range(23)], lambda: ended.append(1)) == [*range(23)]
    assert len(ended) == 23


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
    stage = Stage(model, LaneGeometry(sink=4, window=120, chunk=CHUNK), num_lanes=2)
    configuration = Configuration("float32", "sink-window", 4, 100)
    losses = stage.play([(perplexity.script(text, 1000), configuration.retention(stage.geometry)) for text in texts])
    np.testing.assert_allclose(np.concatenate(losses), expected.numpy(), rtol=1e-4, atol=1e-4)
    found = perplexity.summarize(configuration, texts, losses, losses)
    assert found.whole.value == pytest.approx(float(expected.double().mean().exp()), rel=1e-4)
    assert found.past_the_wrap.num_tokens == 0


def test_perplexity_past_the_wrap_is_not(model: TorchVerifier) -> None:
    random = Random(5)
    text = Text(tuple(random.randrange(1000) for _ in range(120)), (False,) * 120)
    stage = Stage(model, LaneGeometry(sink=4, window=120, chunk=CHUNK), num_lanes=2)
    narrow, wide = (
        stage.play(
            [(perplexity.script(text, 1000), Configuration("float32", "sink-window", 4, w).retention(stage.geometry))]
        )
        for w in (30, 120)
    )
    np.testing.assert_allclose(narrow[0][:34], wide[0][:34], rtol=1e-4)
    assert np.abs(narrow[0][40:] - wide[0][40:]).mean() > 1e-2
