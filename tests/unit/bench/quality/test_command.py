"""`kakeya bench quality` as a whole, on a random model; and its errors."""

import json
import shutil
import sys
import weakref
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kakeya_bench import quality
from kakeya_bench.quality import command, run
from kakeya_bench.quality.measure.measurement import Tasks
from kakeya_shared import plugins
from kakeya_shared.errors.tree import InvalidField
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import Retention, SessionOptions, sink_window
from kakeya_worker.torch_backend import TorchVerifier
from kakeya_worker.torch_backend.mode import choose_mode

pytestmark = pytest.mark.timeout(900)  # whole runs of a model, beside whatever else the machine does
SMALL = "--samples 2 --threads 1 --weights float32 --windows 64 --distances 64,100"

Bench = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def bench(checkpoint: Path, tmp_path: Path) -> Bench:
    """Runs the bench; its exit status and its document."""

    def bench(flags: str, model: Path = checkpoint) -> tuple[int, dict[str, Any]]:
        output = tmp_path / "made" / "here"
        status = command.main(["--model", str(model), "--output", str(output), *flags.split()])
        assert {path.name for path in output.iterdir()} == {
            "card.md",
            "perplexity.png",
            "quality.json",
            "recall.png",
            "report.html",
        }
        return status, json.loads((output / "quality.json").read_text())

    return bench


@pytest.fixture
def progress(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, str]]:
    """What is shown: tasks that are done, of so many, and the one that goes on."""
    shown: list[tuple[int, int, str]] = []
    monkeypatch.setattr(
        Tasks, "show", lambda self, share, what: shown.append((self.num_done, self.num_tasks, what.partition(":")[0]))
    )
    return shown


@pytest.fixture
def plug(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, Any], None]:
    """Puts something in a plugin's place."""

    def plug(group: str, name: str, ours: Any) -> None:
        load = plugins.load

        def load_ours(asked: str, known: str, **options: Any) -> Any:
            return ours if (asked, known) == (group, name) else load(asked, known, **options)

        monkeypatch.setattr(plugins, "load", load_ours)

    return plug


@pytest.mark.heavy
def test_the_document_says_what_was_measured(bench: Bench) -> None:
    status, document = bench(
        "--quick --samples 2 --windows 120,300 --distances 64,100,150 --threads 1 --weights float32,int8 "
        "--floor recall_inside=0.5 --floor int8_perplexity_loss=0.5"
    )
    assert status == 1
    assert [each["verdict"] for each in document["floors"]] == ["not met", "met"]
    assert document["figures"]["recall_inside"] == 0
    assert (document["schema"], document["schema_version"]) == ("kakeya.bench.quality", 1)
    assert document["environment"]["num_threads"] == 1
    assert min(each["anywhere"]["num"] for each in document["recall"]) >= 4
    assert [each["sink"] + each["window"] for each in document["recall"] if each["pinned"]] == [124]
    assert (len(document["recall"]), len(document["multi_turn"]), document["left_out"]) == (5, 3, [])
    places = [(each["weights"], each["sink"], each["window"]) for each in document["perplexity"]]
    assert places == [*(("float32", *each) for each in ((0, 124), (4, 120), (0, 304), (4, 300))), ("int8", 4, 120)]
    for each in document["perplexity"][:4]:
        inside = each["buckets"][0]
        assert (inside["start"], inside["stop"]) == (0, each["sink"] + each["window"])
        assert inside["value"] == pytest.approx(inside["full_attention"]["value"], rel=1e-4)
        assert each["past_the_wrap"]["value"] != pytest.approx(inside["value"], rel=1e-6)
    (comparison,) = document["int8_against_float32"]
    assert comparison["perplexity"]["num_tokens"] == 2 * 124 * document["settings"]["num_texts"]
    assert comparison["perplexity"]["num_answer_tokens"] > 50
    assert 0 < abs(comparison["perplexity_loss"]) < 0.5
    assert 0 < abs(comparison["answers_loss"]) < 0.5
    assert comparison["recall"]["num"] == comparison["agreement"]["num"] >= 2 * 17
    assert comparison["recall_loss"] is None, "a random model recalls nothing"


def test_a_summary_or_the_document_is_printed(
    checkpoint: Path, progress: list[tuple[int, int, str]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The small fox waits near the river. " * 12)
    argv = ["--model", str(checkpoint), *SMALL.split(), "--text", str(text)]
    assert command.main(argv) == 0
    out = capsys.readouterr().out
    assert "float32 sink-window S=4 W=64" in out
    assert "4 sinks" in out
    done, of, what = progress[-1]
    assert (done, what) == (of - 1, "full attention"), "what was left out is not waited for"
    assert command.main([*argv, "--sinks", "4", "--json", "--floor", "int8_recall_loss=1"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["floors"][0]["verdict"] == "not measured"
    assert document["settings"]["text"] == "text.txt"


@pytest.mark.heavy
def test_a_window_of_all_positions_is_full_attention_and_not_measured_twice(
    bench: Bench, checkpoint: Path, progress: list[tuple[int, int, str]], tmp_path: Path
) -> None:
    short = shutil.copytree(checkpoint, tmp_path / "short")
    config = json.loads((short / "config.json").read_text()) | {"max_position_embeddings": 68}
    (short / "config.json").write_text(json.dumps(config))
    found = []
    for model, tasks in ((checkpoint, {"perplexity", "full attention"}), (short, {"perplexity"})):
        progress.clear()
        found.append(bench(SMALL, model)[1]["full_attention"]["float32"])
        assert {what for _, _, what in progress} - {"recall", "multi-turn", "system fact", "pinned fact"} == tasks
    whole, inside = found
    assert inside
    for ours, theirs in zip(inside, whole, strict=False):
        assert (ours["start"], ours["stop"]) == (theirs["start"], theirs["stop"])
        assert ours["value"] == pytest.approx(theirs["value"], rel=1e-4)


@pytest.mark.heavy
def test_the_same_seed_finds_the_same(bench: Bench) -> None:
    few = "--windows 40 --samples 1 --threads 1 --distances 64 --weights float32 --sinks 4"
    documents = [bench(f"{few} --seed {seed}")[1] for seed in (1, 1, 2)]
    first, again, other = ([document[key] for key in ("recall", "multi_turn", "perplexity")] for document in documents)
    assert first == again
    assert first != other


@pytest.mark.heavy
def test_other_policies_come_in_by_name(bench: Bench, plug: Callable[[str, str, Any], None]) -> None:
    def without_sinks(options: SessionOptions, geometry: LaneGeometry) -> Retention:
        if options.sink:
            raise InvalidField("sink: this policy has none", metadata={"field": "sink"})
        return sink_window(options, geometry)

    plug("kakeya.retention", "without-sinks", without_sinks)
    status, document = bench(f"{SMALL} --policies sink-window,without-sinks")
    assert status == 0
    places = [(each["policy"], each["sink"]) for each in document["perplexity"]]
    assert places == [("sink-window", 0), ("sink-window", 4), ("without-sinks", 0)]
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
    bench: Bench, plug: Callable[[str, str, Any], None]
) -> None:
    plug("kakeya.verifier", "torch", Watched)
    status, document = bench("--windows 64 --samples 1 --threads 1 --distances 64,100 --sinks 4")
    assert status == 0
    chosen = choose_mode("auto", "auto", "float32").weights
    assert document["model"]["chosen"] == chosen == document["settings"]["weights"][0]
    assert {each["weights"] for each in document["recall"]} == {chosen}
    modes = ["auto", *document["settings"]["weights"][1:]]
    assert Watched.loads == [(weights, 0) for weights in modes], "none is loaded beside another"
    assert len(document["int8_against_float32"]) == 1


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("--model /nowhere", "/nowhere is not a directory"),
        ("--model no-such-model", "'no-such-model' is neither a directory, a GGUF file nor an installed model"),
        ("--model none.gguf", "none.gguf is not there"),
        ("--model ollama:none", "'none'"),
        ("--policies forgetful", "no kakeya.retention plugin is named 'forgetful'"),
        ("--backend abacus", "no kakeya.verifier plugin is named 'abacus'"),
        ("--windows 9999", "do not fit 4096 positions"),
        ("--windows 64 --distances 3", "no question is as near as 3 tokens"),
        ("--text /nowhere.txt", "/nowhere.txt cannot be read"),
        ("--output /dev/null", "/dev/null: "),
    ],
)
def test_what_cannot_be_measured_is_said_in_a_line(
    checkpoint: Path, argv: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--model", str(checkpoint), "--weights", "float32", "--samples", "1", *argv.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("kakeya bench quality: error: ")
    assert says in err


def test_the_type_of_the_kv_is_that_of_exact_modes(bench: Bench) -> None:
    flags = SMALL.replace("float32", "int8,float32")
    _, document = bench(f"{flags} --samples 1 --sinks 4 --kv-dtype int8")
    assert {mode: facts["kv_dtype"] for mode, facts in document["model"]["modes"].items()} == {
        "int8": "int8",
        "float32": "float32",
    }


def test_what_was_found_is_said_where_it_cannot_be_written(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure = run.run

    def and_remove(*args: Any) -> dict[str, Any]:
        document = measure(*args)
        (tmp_path / "report").rmdir()
        (tmp_path / "report").touch()
        return document

    monkeypatch.setattr(run, "run", and_remove)
    flags = f"{SMALL} --samples 1 --sinks 4 --output {tmp_path / 'report'}"
    assert command.main(["--model", str(checkpoint), *flags.split()]) == 2
    out, err = capsys.readouterr()
    assert "float32 sink-window S=4 W=64" in out
    assert f"error: {tmp_path / 'report'}" in err


def test_a_missing_library_names_its_cure(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(quality, "run")
    monkeypatch.delitem(sys.modules, run.__name__)
    monkeypatch.setitem(sys.modules, "structlog", None)
    assert command.main(["--model", str(checkpoint)]) == 2
    assert "pip install 'kakeya-bench[quality]'" in capsys.readouterr().err


def test_the_bench_is_found_by_entry_point() -> None:
    (point,) = entry_points(group="kakeya.benches", name="quality")
    assert (point.load(), bool(command.SUMMARY)) == (command, True)
