"""What is asked of the quality bench, and what is measured then."""

import pytest

from kakeya_bench.quality import floors, plan
from kakeya_bench.quality.plan import ANSWER_TOKENS, Configuration, Kind, Plan
from kakeya_bench.quality.settings import CannotMeasure, QualitySettings
from kakeya_worker.engine.seams.verifier import ModelFacts

BOTH = ("int8", "float32")


def facts(max_positions: int = 1024, kv_bytes_per_token: int = 3072) -> ModelFacts:
    return ModelFacts(
        "torch", "float32", "float32", False, "f", 2048, max_positions, "as the test says", kv_bytes_per_token
    )


def made(max_positions: int = 1024, **settings: object) -> Plan:
    return plan.make(QualitySettings(model="m", **settings), facts(max_positions))  # type: ignore[arg-type]


def test_flags_are_read() -> None:
    argv = (
        "--model m --weights int8,float32 --windows 64,128 --sinks 4,0,4 --distances 16,32 --samples 5 --seed 7 "
        "--threads 1 --text t.txt --output o --floor recall_inside=0.9 --floor int8_recall_loss=0.01 "
        "--policies a,b --full --json"
    )
    given = QualitySettings.parse(argv.split())
    assert (given.weights, given.windows, given.sinks, given.distances) == (BOTH, (64, 128), (4, 0), (16, 32))
    assert (given.num_samples, given.seed, given.threads, given.full, given.print_json) == (5, 7, 1, True, True)
    assert given.floor == ("recall_inside=0.9", "int8_recall_loss=0.01")
    assert given.policies == ("a", "b")


def test_each_flag_has_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAKEYA_BENCH_MODEL", "m")
    monkeypatch.setenv("KAKEYA_BENCH_FLOOR", "recall_inside=0.9,recall_pinned=0.8")
    monkeypatch.setenv("KAKEYA_BENCH_WINDOWS", "64,128")
    given = QualitySettings.parse([])
    assert (given.model, given.windows) == ("m", (64, 128))
    assert given.floor == ("recall_inside=0.9", "recall_pinned=0.8")


def test_by_default_all_installed_policies_are_measured() -> None:
    given, quick = QualitySettings.parse(["--model", "m"]), QualitySettings.parse(["--model", "m", "--quick"])
    assert "sink-window" in given.policies
    assert (given.weights, given.sinks, given.windows) == (("auto", "float32", "int8"), (0, 4), None)
    assert given.num_samples > quick.num_samples >= plan.ENOUGH


@pytest.mark.parametrize(
    "argv",
    [
        "",
        "--model m --windows 0",
        "--model m --sinks -1",
        "--model m --weights int4",
        "--model m --weights float32,auto",
        "--model m --samples x",
        "--model m --floor recall=0.5",
        "--model m --floor recall_inside",
        "--model m --floor recall_inside=x",
        "--model m --floor recall_inside=95",
    ],
)
def test_what_makes_no_sense_is_a_usage_error(argv: str) -> None:
    with pytest.raises(SystemExit) as raised:
        QualitySettings.parse(argv.split())
    assert raised.value.code == 2


def test_floors_are_judged() -> None:
    least, most = ("recall_inside", 0.95), ("int8_recall_loss", 0.01)
    judged = [(*least, 0.95), (*least, 0.9499), (*least, None), (*most, -0.2), (*most, 0.011), (*most, None)]
    assert [floors.judge(*each).outcome for each in judged] == ["passed", "failed", "undecided"] * 2
    found = dict.fromkeys(floors.FLOORS) | {"recall_inside": 0.5}
    assert floors.document("recall_inside=0.95", found) == {
        "name": "recall_inside",
        "kind": "minimum",
        "bound": 0.95,
        "figure": 0.5,
        "verdict": "not met",
    }
    assert floors.document("int8_recall_loss=1", found)["verdict"] == "not measured"


def test_a_pin_takes_from_the_window() -> None:
    configuration = Configuration("float32", "sink-window", 4, 64)
    assert configuration.pinned(30) == Configuration("float32", "sink-window", 30, 38)
    assert configuration.pinned(2) == configuration


def test_the_default_plan_suits_the_models_positions() -> None:
    windows = [made(positions).windows for positions in (1024, 40960, 260, 200, 40)]
    assert windows == [(128, 256, 1020), (128, 256, 1020), (128, 256), (128, 196), (36,)]
    assert made(quick=True).windows == (256,)
    with pytest.raises(CannotMeasure, match=r"sinks 4 \+ window 1021 do not fit 1024 positions, as the test says"):
        made(windows=(64, 1021))
    assert [made(positions).reference_length for positions in (1024, 40960)] == [1024, int(2.1 * 1024)]


def test_every_sink_count_gets_the_same_memory() -> None:
    whole = made(weights=("float32",), policies=("a", "b"), windows=(256, 64))
    assert [(each.policy, each.sink, each.window) for each in whole.configurations("float32")] == [
        (policy, *divided) for policy in "ab" for divided in ((0, 68), (4, 64), (0, 260), (4, 256))
    ]
    geometry = whole.geometry(longest_probe=70)
    assert (geometry.chunk, geometry.capacity) == (80, 260)
    lanes = [plan.num_lanes(facts(kv_bytes_per_token=size), geometry) for size in (3072, 1 << 20, 1 << 30)]
    assert lanes == [plan.MOST_LANES, 2, 1]


def test_everything_is_measured_at_the_middle_window_and_the_costly_only_there() -> None:
    whole, full = made(weights=BOTH), made(weights=BOTH, full=True)
    always, costly = [Kind.RECALL, Kind.MULTI_TURN], [Kind.SYSTEM, Kind.PINNED]
    measured = {(each.sink, each.window): whole.kinds(each) for each in whole.configurations("int8")}
    assert measured == {
        (0, 132): [],
        (4, 128): always,
        (0, 260): always,
        (4, 256): [*always, *costly, Kind.COMPARED],
        (0, 1024): [],
        (4, 1020): always,
    }
    (other,) = whole.configurations("float32")
    assert (other.window, whole.kinds(other)) == (256, [Kind.COMPARED])
    assert Kind.COMPARED not in made(weights=("int8",)).kinds(Configuration("int8", "sink-window", 4, 256))
    everything = [full.kinds(each) for weights in BOTH for each in full.configurations(weights)]
    assert len(everything) == 12
    assert all(kinds[:2] == always for kinds in everything)
    assert sum(kinds[2:4] == costly for kinds in everything) == 6
    assert (whole.num_tasks("int8"), whole.num_tasks("float32")) == (13, 2)


def test_what_is_judged_was_asked_16_times_or_in_every_dialogue() -> None:
    assert [made(samples=num).enough for num in (2, 16, 18, 100)] == [2, 16, 16, 16]
    assert made().num_compared >= 300


def test_small_windows_are_asked_at_fewer_distances_unless_they_are_given() -> None:
    assert made().distances[-1] == 2150
    assert [made().furthest(capacity) for capacity in (68, 1024)] == [176, 2150]
    given = made(distances=(900, 16))
    assert (given.distances, given.furthest(68)) == ((16, 900), 900)


def test_distances_are_two_an_octave_and_on_both_sides_of_each_windows_edge() -> None:
    assert sorted(plan.default_distances(68, ())) == [16, 23, 32, 45, 64, 91, 142]
    assert plan.default_distances(4, ()) == {8}
    distances = plan.default_distances(1024, (40, 128, 256, 1020))
    assert {edge for window in (128, 256, 1020) for edge in (window - ANSWER_TOKENS, window + 48)} <= distances
    assert 8 not in distances, "nearer than any question"
    assert 91 not in distances, "next to 96 no filler fits between the two"


def test_the_help_names_defaults_as_they_are_typed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        QualitySettings.parse(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "Default auto,float32,int8 [KAKEYA_BENCH_WEIGHTS]" in said
    assert "Default 0,4 [KAKEYA_BENCH_SINKS]" in said
