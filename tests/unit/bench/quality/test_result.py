"""What follows from what was found: shares, buckets, means, figures, sentences, a card."""

import json
import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kakeya_bench.quality.material.dialogue import Text
from kakeya_bench.quality.material.script import Outcome
from kakeya_bench.quality.measure.measurement import Asked, Found
from kakeya_bench.quality.plan import Configuration, Kind, make
from kakeya_bench.quality.result import document, figures, page
from kakeya_bench.quality.result.figures import recall
from kakeya_bench.quality.settings import QualitySettings
from tests.unit.bench.quality.test_plan import facts

CARD = Path(__file__).parent / "card.txt"
CONFIGURATION = Configuration("float32", "sink-window", 4, 64)


def asked(*recalled: tuple[int, str], kind: Kind = Kind.RECALL, where: Configuration = CONFIGURATION) -> Asked:
    """At distances two tokens below their targets, of tellings of ten tokens: a 1 for each that was recalled."""
    outcomes = [
        Outcome(target, target - 2, target - 11, each == "1", (int(each),))
        for target, some in recalled
        for each in some
    ]
    return Asked(kind, where, outcomes)


def counted(share: Mapping[str, Any]) -> tuple[int, int]:
    return share["hits"], share["num"]


def test_recall_falls_where_less_than_half_is_recalled() -> None:
    targets = (16, "11"), (30, "11"), (64, "10"), (128, "00"), (160, "01")
    found = recall(asked(*targets), 2)
    assert [(at["target"], at["distance"], at["hits"]) for at in found["by_distance"]] == [
        (16, 14, 2),
        (30, 28, 2),
        (64, 62, 1),
        (128, 126, 0),
        (160, 158, 1),
    ]
    assert (found["falls_at"], found["stays_fallen"]) == (126, False), "half is recalled at the distance after it"
    assert recall(asked(*targets[:4]), 2)["stays_fallen"] is True
    assert counted(found["inside"]) == (4, 4), "of what stays in sight to the end of an answer of 32 tokens"
    assert counted(found["anywhere"]) == (6, 10)
    assert recall(asked(*targets[:2]), 2)["falls_at"] is None


def test_only_distances_at_which_enough_was_asked_are_judged_each_by_itself() -> None:
    rare = recall(asked((16, "0"), (30, "11"), (128, "0"), (160, "1")), 2)
    assert (rare["falls_at"], rare["stays_fallen"]) == (None, False)
    found = recall(asked((16, "1" * 90), (20, "0" * 9), (34, "1" * 5 + "0" * 5)), 10)
    assert counted(found["inside"]) == (95, 109)
    assert found["lowest_inside"] == 0.5, "not 0.0 of what was rarely asked, nor 0.87 of all"
    assert found["lowest_beyond"] is None


def test_beyond_is_what_the_window_alone_does_not_see() -> None:
    seen = (64, "1"), (74, "1"), (75, "1")  # the last token at 53, 63 and 64, W = 64
    found = recall(asked(*seen, (300, "0"), kind=Kind.PINNED), 1)
    assert [counted(at["beyond"]) for at in found["by_distance"]] == [(0, 0), (0, 0), (1, 1), (0, 1)]
    assert (found["told_by"], found["pinned"], found["lowest_beyond"]) == ("system", True, 0.0)


@pytest.mark.parametrize("num_positions", [1, 17, 18, 67, 68, 69, 1999])
def test_buckets_double_and_intervals_are_equal_and_leave_nothing_out(num_positions: int) -> None:
    buckets, intervals = list(figures.bounds(68, num_positions)), figures.intervals(num_positions)
    for each in (buckets, intervals):
        assert (each[0][0], each[-1][1]) == (0, num_positions)
        assert all(before[1] == after[0] for before, after in pairwise(each))
    assert [start for start, _ in buckets[1:]] == [68 * 2**power for power in range(len(buckets) - 1)]
    assert len({stop - start for start, stop in intervals}) <= 2


def test_perplexity_is_the_exponential_of_the_mean_loss() -> None:
    texts = [Text((1, 2, 3, 4), (False, False, True, True)), Text((5, 6), (False, True))]
    losses = [np.array([1.0, 2.0, 3.0]), np.array([6.0])]
    whole, first, nothing = (figures.between(texts, losses, *each) for each in ((0, 3), (0, 1), (3, 9)))
    assert (whole["num_tokens"], whole["num_answer_tokens"]) == (4, 3)
    assert whole["value"] == pytest.approx(math.exp(12 / 4))
    assert whole["of_answers"] == pytest.approx(math.exp(11 / 3)), "a loss belongs to the token that it predicts"
    assert (first["num_tokens"], first["value"]) == (2, pytest.approx(math.exp(3.5)))
    assert (nothing["num_tokens"], nothing["value"], nothing["of_answers"]) == (0, None, None)
    assert figures.between(texts, [np.array([math.nan]), losses[1]], 0, 1)["value"] is None, "JSON has no such word"


def test_perplexity_is_told_by_bucket_beside_full_attention() -> None:
    texts = [Text(tuple(range(301)), (True,) * 301)]
    found = figures.perplexity(CONFIGURATION, texts, [np.repeat([1.0, 2.0], [68, 232])], [np.ones(150)])
    assert [(each["start"], each["stop"]) for each in found["buckets"]] == [(0, 68), (68, 136), (136, 272), (272, 300)]
    assert [each["value"] for each in found["buckets"]] == pytest.approx([math.e, *[math.e**2] * 3])
    full = [each["full_attention"] and each["full_attention"]["value"] for each in found["buckets"]]
    assert full == [pytest.approx(math.e), pytest.approx(math.e), None, None]
    assert (found["past_the_wrap"]["start"], found["past_the_wrap"]["num_tokens"]) == (68, 232)
    assert (found["whole"]["num_tokens"], len(found["curve"])) == (300, figures.NUM_INTERVALS)
    assert figures.curve(texts, [np.ones(150)])[-1]["stop"] == 150


def written(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Of a run that never was: float32 recalls a little more than int8."""
    floors = "recall_inside=0.5", "recall_pinned=0.9", "multi_turn_recall=1", "int8_recall_loss=0.01"
    settings = QualitySettings(
        model="m",
        weights=("int8", "float32"),
        windows=(64,),
        sinks=(0, 4),
        distances=(16, 64, 128),
        samples=2,
        threads=1,
        floor=floors,
        policies=("sink-window",),
    )
    texts, found = [Text(tuple(range(201)), (False, True, True) * 67)], {}
    for weights, same in (("int8", "10"), ("float32", "11")):
        few, most = (Configuration(weights, "sink-window", *each) for each in ((0, 68), (4, 64)))
        dialogues = [asked((16, same), kind=Kind.COMPARED, where=most)]
        if weights == "int8":
            dialogues += [
                asked((16, "11"), (64, "1"), (128, "00"), where=most),
                asked((128, "11"), kind=Kind.MULTI_TURN, where=most),
                asked((16, "11"), (128, "00"), kind=Kind.SYSTEM, where=most),
                asked((16, "11"), (128, "11"), kind=Kind.PINNED, where=most.pinned(20)),
            ]
        losses = {few: [np.linspace(0.5, 1.5, 200)], most: [np.linspace(0.5, 1.0, 200)]}
        found[weights] = Found(facts(), texts, dialogues, losses, [np.linspace(0.5, 0.7, 142)], [f"{few}: not asked"])
    monkeypatch.setattr(document, "environment", lambda: {"machine": "a"})
    model = {"name": "a|b", "has_chat_template": True, "chosen": "int8"}
    made = document.document(make(settings, facts()), found, model, seconds=61.23)
    made["made_at"] = "2026-01-01T00:00:00+00:00"
    return dict(json.loads(json.dumps(made, allow_nan=False)))


def test_figures_are_those_of_the_worst_and_decide_the_floors(monkeypatch: pytest.MonkeyPatch) -> None:
    made = written(monkeypatch)
    assert made["figures"] == {
        "recall_inside": 1.0,
        "recall_pinned": 1.0,
        "multi_turn_recall": None,
        "int8_recall_loss": 0.5,
        "int8_perplexity_loss": 0.0,
    }
    assert [each["verdict"] for each in made["floors"]] == ["met", "met", "not measured", "not met"]


def test_the_card_says_all_of_it_and_so_does_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    made = written(monkeypatch)
    files = page.files(made)
    assert files["card.md"].decode() == CARD.read_text(), "where that is meant: write this text into the file"
    assert files.keys() == {"card.md", "report.html", "recall.png", "perplexity.png"}
    assert all(files[name].startswith(b"\x89PNG") for name in ("recall.png", "perplexity.png"))
    html = files["report.html"].decode()
    assert all(f"<h2>{heading[3:]}</h2>" in html for heading in CARD.read_text().splitlines() if heading[:3] == "## ")
    title, sections = page.summary(made)
    assert title == "a|b: what a bounded cache costs"
    assert [section.heading for section in sections][-2:] == ["What follows", "Floors"]
