"""`kakeya bench quality` as a whole, on a random model; and its errors."""

import json
import re
import shutil
import sys
import weakref
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kakeya_shared import plugins
from kakeya_shared.errors.tree import InvalidField
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import Retention, SessionOptions, sink_window
from kakeya_worker.quality import bench, output
from kakeya_worker.quality.failure import CannotMeasure
from kakeya_worker.torch_backend import TorchVerifier
from kakeya_worker.torch_backend.mode import choose_mode
from tests.unit.worker.quality_checkpoint import save_quality_checkpoint

pytestmark = pytest.mark.timeout(240)  # whole runs of a model, beside whatever else the machine does
FILES = ["card.md", "perplexity.png", "quality.json", "recall.png"]
PNG = b"\x89PNG\r\n\x1a\n"
SMALL = ("--windows", "64", "--samples", "2", "--threads", "1", "--distances", "64,100")
FEW = (
    "--windows",
    "40",
    "--samples",
    "1",
    "--threads",
    "1",
    "--distances",
    "64",
    "--weights",
    "float32",
    "--sinks",
    "4",
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_quality_checkpoint(tmp_path_factory.mktemp("models") / "random")


@pytest.fixture(scope="module")
def quick(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """A quick run with a floor that is not met; its exit status and its files."""
    directory = tmp_path_factory.mktemp("output") / "made" / "here"
    floors = ("--floor", "recall_inside=0.5", "--floor", "int8_perplexity_loss=0.5")
    few = ("--samples", "2", "--windows", "120,300", "--distances", "64,100,150", "--threads", "1")
    weights = ("--weights", "float32,int8")
    status = bench.main(["--model", str(checkpoint), "--quick", *few, *weights, "--output", str(directory), *floors])
    return status, directory


@pytest.mark.heavy
def test_a_quick_run_leaves_all_its_files(quick: tuple[int, Path]) -> None:
    _, directory = quick
    assert sorted(path.name for path in directory.iterdir()) == FILES
    for name in ("recall.png", "perplexity.png"):
        content = (directory / name).read_bytes()
        assert content.startswith(PNG)
        assert len(content) > 20_000


@pytest.mark.heavy
def test_the_document_says_what_was_measured(quick: tuple[int, Path]) -> None:
    document = json.loads((quick[1] / "quality.json").read_text())
    assert (document["schema"], document["schema_version"]) == ("kakeya.bench.quality", 1)
    assert set(document["model"]["modes"]) == {"float32", "int8"}
    assert all(len(mode["fingerprint"]) == 64 for mode in document["model"]["modes"].values())
    assert document["environment"]["num_threads"] == 1
    assert document["settings"]["seed"] == 0
    recalls = {
        (each["weights"], each["sink"], each["window"], each["told_by"], each["pinned"]): each
        for each in document["recall"]
    }
    everywhere, in_the_middle = [(4, 300, "user", False)], [(0, 124, "user", False), (4, 120, "system", False)]
    for key in (*everywhere, *in_the_middle, (4, 120, "user", False)):
        assert recalls["float32", *key]["anywhere"]["num"] >= 4
    pinned = [each for each in document["recall"] if each["pinned"]]
    assert [each["sink"] + each["window"] for each in pinned] == [124]
    assert len(recalls) == 5
    assert len(document["multi_turn"]) == 3
    assert not document["left_out"]


@pytest.mark.heavy
def test_the_document_holds_perplexities(quick: tuple[int, Path]) -> None:
    document = json.loads((quick[1] / "quality.json").read_text())
    by_place = {(each["weights"], each["sink"], each["window"]): each for each in document["perplexity"]}
    assert set(by_place) == {
        ("float32", 0, 124),
        ("float32", 4, 120),
        ("float32", 0, 304),
        ("float32", 4, 300),
        ("int8", 4, 120),
    }
    for (weights, sink, window), each in by_place.items():
        inside = each["buckets"][0]
        assert (inside["start"], inside["stop"]) == (0, sink + window)
        if weights == "float32":
            assert inside["value"] == pytest.approx(inside["full_attention"]["value"], rel=1e-4)
            assert each["past_the_wrap"]["value"] != pytest.approx(inside["value"], rel=1e-6)
    (comparison,) = document["int8_against_float32"]
    assert comparison["perplexity"]["num_tokens"] == 2 * 124 * document["settings"]["num_texts"]
    assert comparison["perplexity"]["num_answer_tokens"] > 50
    assert 0 < abs(comparison["perplexity_loss"]) < 0.5
    assert 0 < abs(comparison["answers_loss"]) < 0.5
    assert comparison["recall"]["num"] == comparison["agreement"]["num"] >= 2 * 17
    assert comparison["recall_loss"] is None, "a random model recalls nothing"


@pytest.mark.heavy
def test_a_floor_that_is_not_met_is_the_exit_status(quick: tuple[int, Path]) -> None:
    status, directory = quick
    assert status == 1
    floors = {each["name"]: each for each in json.loads((directory / "quality.json").read_text())["floors"]}
    assert (floors["recall_inside"]["figure"], floors["recall_inside"]["verdict"]) == (0.0, "not met")
    assert floors["int8_perplexity_loss"]["verdict"] == "met"


@pytest.mark.heavy
def test_the_card_tells_it_to_people(quick: tuple[int, Path]) -> None:
    card = (quick[1] / "card.md").read_text()
    assert card.startswith("# random: what a bounded cache costs\n")
    for heading in ("Floors", "Recall against distance, float32", "Multi-turn recall, float32",
                    "Perplexity by position", "int8 against float32", "How it was measured"):  # fmt: skip
        assert f"## {heading}\n" in card
    assert "| recall_inside | 0.0000 | at least 0.5 | not met |" in card
    assert "past the wrap of S+W = 124: perplexity " in card
    assert "int8 with KV of bfloat16, float32 with KV of float32" in card
    assert "Measured whole: float32." in card
    for line in card.splitlines():
        if line.startswith("|"):
            assert line.endswith("|")


def test_without_floors_the_status_is_0_and_a_table_is_printed(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The small fox waits near the river. " * 12)
    assert bench.main(["--model", str(checkpoint), *SMALL, "--weights", "float32", "--text", str(text)]) == 0
    out, err = capsys.readouterr()
    assert "recall in sight" in out
    assert "float32 sink-window S=4 W=64" in out
    assert "4 sinks" in out
    last = err.splitlines()[-1]
    assert re.match(r"\[(\d+)/\1\] full attention: float32 \(", last), "what was left out is not waited for"


@pytest.mark.heavy
def test_a_window_of_all_positions_is_full_attention_and_not_measured_twice(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    short = shutil.copytree(checkpoint, tmp_path / "short")
    config = json.loads((short / "config.json").read_text()) | {"max_position_embeddings": 68}
    (short / "config.json").write_text(json.dumps(config))
    found = {}
    for model, tasks in ((checkpoint, ["perplexity", "full attention"]), (short, ["perplexity"])):
        output_to = tmp_path / "output" / model.name
        argv = ["--model", str(model), *SMALL, "--weights", "float32", "--output", str(output_to)]
        assert bench.main(argv) == 0
        lines = capsys.readouterr().err.splitlines()
        assert re.findall(r"(perplexity|full attention): float32 \(", "\n".join(lines)) == tasks
        assert re.match(r"\[(\d+)/\1\] ", lines[-1])
        found[model] = json.loads((output_to / "quality.json").read_text())["full_attention"]["float32"]
    inside = found[short]
    assert inside
    for ours, theirs in zip(inside, found[checkpoint], strict=False):
        assert (ours["start"], ours["stop"]) == (theirs["start"], theirs["stop"])
        assert ours["value"] == pytest.approx(theirs["value"], rel=1e-4)


def test_what_cannot_be_judged_is_status_2(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--model", str(checkpoint), *SMALL, "--weights", "float32", "--sinks", "4", "--floor", "int8_recall_loss=1"]
    assert bench.main(argv) == 2
    assert "floor int8_recall_loss = -, at most 1: not measured" in capsys.readouterr().out


@pytest.mark.heavy
def test_the_same_seed_finds_the_same(checkpoint: Path, tmp_path: Path) -> None:
    documents = []
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        argv = ["--model", str(checkpoint), *FEW, "--seed", seed]
        assert bench.main([*argv, "--output", str(tmp_path / name)]) == 0
        documents.append(json.loads((tmp_path / name / "quality.json").read_text()))
    first, again, other = ([document[key] for key in ("recall", "multi_turn", "perplexity")] for document in documents)
    assert first == again
    assert first != other


@pytest.mark.heavy
def test_other_policies_come_in_by_name(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_sinks(options: SessionOptions, geometry: LaneGeometry) -> Retention:
        if options.sink:
            raise InvalidField("sink: this policy has none", metadata={"field": "sink"})
        return sink_window(options, geometry)

    load = plugins.load

    def load_ours(group: str, name: str, **options: Any) -> Any:
        return without_sinks if (group, name) == ("kakeya.retention", "without-sinks") else load(group, name, **options)

    monkeypatch.setattr(plugins, "load", load_ours)
    argv = ["--model", str(checkpoint), *SMALL, "--weights", "float32", "--policies", "sink-window,without-sinks"]
    assert bench.main([*argv, "--output", str(tmp_path)]) == 0
    document = json.loads((tmp_path / "quality.json").read_text())
    assert {(each["policy"], each["sink"]) for each in document["perplexity"]} == {
        ("sink-window", 0), ("sink-window", 4), ("without-sinks", 0),
    }  # fmt: skip
    for reason in ("this policy has none", "pinned facts: ", "too small for 3 facts"):
        assert any(reason in left_out for left_out in document["left_out"])


class Watched(TorchVerifier):
    """Knows what is loaded at a time, and says so with every load."""

    alive: ClassVar[weakref.WeakSet["Watched"]] = weakref.WeakSet()
    loads: ClassVar[list[tuple[str, int]]] = []

    def __init__(self, model: str, *, weights: str, **options: Any) -> None:
        self.loads.append((weights, len(self.alive)))
        super().__init__(model, weights=weights, **options)
        self.alive.add(self)


@pytest.mark.heavy
def test_by_default_that_mode_is_measured_whole_which_a_worker_would_choose(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = plugins.load

    def load_ours(group: str, name: str, **options: Any) -> Any:
        return Watched if group == "kakeya.verifier" else load(group, name, **options)

    monkeypatch.setattr(plugins, "load", load_ours)
    argv = ["--model", str(checkpoint), *SMALL, "--samples", "1", "--sinks", "4", "--output", str(tmp_path)]
    assert bench.main(argv) == 0
    document = json.loads((tmp_path / "quality.json").read_text())
    chosen = choose_mode("auto", "auto", "float32").weights
    assert document["model"]["chosen"] == chosen == document["settings"]["weights"][0]
    assert {each["weights"] for each in document["recall"]} == {chosen}
    assert [weights for weights, _ in Watched.loads] == ["auto", *document["settings"]["weights"][1:]]
    assert [num for _, num in Watched.loads] == [0] * len(Watched.loads), "one is loaded beside another"
    assert len(document["int8_against_float32"]) == 1


def test_ctrl_c_leaves_nothing_behind(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(output, "perplexity_picture", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bench.main(
            ["--model", str(checkpoint), *SMALL, "--weights", "float32", "--sinks", "4", "--output", str(tmp_path)]
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("broken_off", ["write_bytes", "replace"])
def test_ctrl_c_in_the_middle_of_writing_leaves_no_file_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken_off: str
) -> None:
    for name, content in (
        ("card", "new"),
        ("recall_picture", b"new"),
        ("perplexity_picture", b"new"),
        ("document", {}),
    ):
        monkeypatch.setattr(output, name, lambda _, content=content: content)
    for name in FILES:
        (tmp_path / name).write_text("old")
    plain, calls = getattr(Path, broken_off), list[Path]()

    def interrupted(path: Path, *args: Any) -> Any:
        calls.append(path)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return plain(path, *args)

    monkeypatch.setattr(Path, broken_off, interrupted)
    with pytest.raises(KeyboardInterrupt):
        output.write(None, tmp_path)  # type: ignore[arg-type]  # what it renders is replaced
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES
    assert (tmp_path / "quality.json").read_text() == "old", "the last one to be new"
    if broken_off == "write_bytes":
        assert {(tmp_path / name).read_text() for name in FILES} == {"old"}


def test_a_place_that_cannot_be_written_is_said_before_anything_is_measured(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert bench.main(["--model", str(checkpoint), "--output", str(file)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"kakeya bench quality: error: {file} cannot be written to: ")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--model", "/nowhere"], "/nowhere is not a directory"),
        (["--model", "no-such-model"], "'no-such-model' is neither a directory nor an installed model"),
        (["--policies", "forgetful"], "no kakeya.retention plugin is named 'forgetful'"),
        (["--backend", "abacus"], "no kakeya.verifier plugin is named 'abacus'"),
        (["--windows", "9999"], "do not fit 4096 positions"),
        (["--distances", "3"], "no question is as near as 3 tokens"),
        (["--text", "/nowhere.txt"], "/nowhere.txt cannot be read"),
    ],
)
def test_what_cannot_be_measured_is_said_in_a_line(
    checkpoint: Path, argv: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own = [] if "--model" in argv else ["--model", str(checkpoint)]
    assert bench.main([*own, *SMALL, "--weights", "float32", *argv]) == 2
    err = capsys.readouterr().err
    assert err.startswith("kakeya bench quality: error: ")
    assert says in err


def test_a_missing_library_names_its_cure(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert bench.main(["--model", str(checkpoint)]) == 2
    assert "pip install 'kakeya-worker[torch,bench]'" in capsys.readouterr().err


def test_an_unwritable_result_is_an_error_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in (("card", ""), ("recall_picture", b""), ("perplexity_picture", b""), ("document", {})):
        monkeypatch.setattr(output, name, lambda _, content=content: content)
    with pytest.raises(CannotMeasure, match="cannot be written to"):
        output.write(None, tmp_path / "gone")  # type: ignore[arg-type]  # what it renders is replaced


def test_the_bench_is_found_by_entry_point() -> None:
    (point,) = entry_points(group="kakeya.benches", name="quality")
    assert isinstance(point, EntryPoint)
    assert point.load() is bench
    assert bench.SUMMARY
