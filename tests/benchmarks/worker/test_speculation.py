"""`make bench-speculation` on kakeya-nano, without what it says about time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from kakeya_shared import installed_models
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.speculation.names import DRAFT_MODEL, NONE
from tests.benchmarks import bench
from tests.benchmarks.worker import speculation, talks
from tests.benchmarks.worker.engine_session import EngineSession
from tests.benchmarks.worker.speculation import POOL
from tests.benchmarks.worker.speculation_stand import LANE, Played, Stand, stand
from tests.layers import save_fewer_layers, save_more_layers
from tests.loops.recordings import Recording

_NANO = installed_models.directory("kakeya-nano")
_WINDOW = 124
_LISTED = "[Tool: exec(ls)] main.c lib.c lib.h notes.md Makefile README.md"
_FILLER = "Nothing else was found in a very long list of other words, told here so that a lane forgets. " * 6


@pytest.fixture(scope="module")
def on(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with pytest.MonkeyPatch.context() as patch:
        # What a busy machine measures of its steps may say that no draft is worth it.
        patch.setattr(Engine, "fit_step_costs", lambda _: None)
        with stand(_NANO, _WINDOW, tmp_path_factory.mktemp("weights")) as made:
            yield made


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(_NANO / "tokenizer.json"))


def recording(*between: str) -> Recording:
    """Whose answers repeat each other, with something said between."""
    return Recording("id", "codex", "session", ["What is here?", *between], [_LISTED] * (1 + len(between)))


def test_a_transcript_is_said_word_for_word(on: Stand, tokenizer: Tokenizer) -> None:
    talk = talks.transcript(recording("And now?", "And now?"), tokenizer, talks.spread(10_000), 1 << 16)
    found = speculation.compare(on, [[talk, talk]], (NONE, LANE, POOL), 1)
    appended = EngineSession(on.engine, "appended")
    appended.prefill(tuple(talk.dictation))
    digest = on.engine.lanes.occupant("appended").lane.history_digest
    appended.close()
    assert {played.digests[-1] for side in found.values() for played in side} == {digest}
    for name in (LANE, POOL):
        of_name = speculation.figures(found, name)
        assert of_name["differ"] == 0
        assert of_name["tokens"] == 2 * sum(turn.num_tokens for turn in talk.turns)
        assert of_name["accepted_part"] > 0.3
        shares = list(of_name["acceptance"].values())
        assert 0.0 < shares[0] <= 1.0
        assert all(0.0 <= share <= 1.0 for share in shares)
    assert not speculation.figures(found, NONE)["accepted_part"]


def test_the_pool_knows_what_the_lane_has_forgotten(on: Stand, tokenizer: Tokenizer) -> None:
    talk = talks.transcript(recording(_FILLER), tokenizer, lambda lengths: [0, lengths[1]], 1 << 16)
    found = speculation.compare(on, [[talk]], (NONE, LANE, POOL), 2)
    assert speculation.figures(found, POOL)["accepted_part"] > speculation.figures(found, LANE)["accepted_part"] + 0.3


def test_nano_says_the_same_with_drafts(on: Stand, tokenizer: Tokenizer) -> None:
    quoted = talks.quoting(tokenizer, 6)
    told = [talks.prose(tokenizer, seed, 20) for seed in range(2)]
    for played in ([[quoted]], [told]):
        sides = speculation.compare(on, played, (NONE, POOL), 1)
        assert speculation.figures(sides, POOL)["differ"] == 0
    assert [played.num_tokens for played in sides[POOL]] == [40]
    assert speculation.beside(on, told[0], told[1], 1)["p95_ratio"] > 0


def test_turns_of_one_length_are_spread_over_long_answers() -> None:
    lengths = [5, 70, 80, 10, 90, 64, 63, 100]
    assert talks.alike(2, 64)(lengths) == [0, 64, 0, 0, 64, 0, 0, 0]
    assert talks.spread(100)([50] * 10) == [0, 0, 50, 0, 0, 0, 0, 50, 0, 0]


@pytest.mark.parametrize(("seconds", "outcome"), [(0.5, "passed"), (1.0, "failed")])
def test_the_verdict_is_of_the_same_tokens(seconds: float, outcome: str) -> None:
    side = {NONE: [Played(1.0, 10, digests=[1])], POOL: [Played(seconds, 10, digests=[1])]}
    of_all: dict[str, Any] = {name: speculation.figures(side, POOL) for name in speculation.BOUNDS}
    of_all |= {"beside": {"p95_ratio": 1}, "beside_draft_model": {"p95_ratio": 1}}
    document = speculation.document(of_all)
    assert document["codex_pool"] == 1 / seconds
    assert bench.tables(document)
    found = {verdict.gate: verdict.outcome for verdict in speculation.verdicts(of_all)}
    assert found["codex_pool"] == outcome
    assert found["same_tokens"] == "passed"
    side[POOL][0].digests[0] = 2
    of_all |= {"prose": speculation.figures(side, POOL), "beside": {"p95_ratio": 2}}
    found = {verdict.gate: verdict.outcome for verdict in speculation.verdicts(of_all)}
    assert (found["same_tokens"], found["beside"]) == ("failed", "failed")
    assert found["beside_draft_model"] == "passed"


def test_a_draft_model_says_the_same(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "fit_step_costs", lambda _: None)
    model = save_more_layers(_NANO, tmp_path / "deep", 7)
    told = [[talks.prose(tokenizer, seed, 20)] for seed in range(2)]
    with stand(model, _WINDOW, tmp_path / "weights", save_fewer_layers(_NANO, tmp_path / "near", 5)) as made:
        sides = speculation.compare(made, told, (NONE, DRAFT_MODEL), 1)
    found = speculation.figures(sides, DRAFT_MODEL)
    assert found["differ"] == 0
    assert found["accepted_part"] > 0
