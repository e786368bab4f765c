"""How the slab is divided, and the settings that say so."""

from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kakeya_shared.process.service_process import StartError
from kakeya_worker.engine.seams.verifier import ModelFacts
from kakeya_worker.settings import WorkerSettings
from kakeya_worker.sizing import DEFAULT_SLAB_BYTES, SlabPlan, plan

QWEN3_06B = ModelFacts(
    backend="torch",
    weights="int8",
    kv_dtype="bfloat16",
    exact=True,
    fingerprint="f",
    vocab_size=151_936,
    max_positions=40_960,
    max_positions_reason="the model's max_position_embeddings",
    kv_bytes_per_token=114_688,
)
TINY = replace(QWEN3_06B, vocab_size=1024, max_positions=512, kv_bytes_per_token=2_048)
LANE_SLOTS = 114  # 4 sinks, a window of 64, and slack for chunks of 32 in blocks of 16


def _plan(facts: ModelFacts, **given: int | str | None) -> SlabPlan:
    # One dictionary holds arguments of several types.
    return plan(facts, **{"sink": 4, "window": None, "chunk": 32, "num_lanes": None, "slab_bytes": None, **given})  # type: ignore[arg-type]


def test_given_numbers_are_kept() -> None:
    made = _plan(QWEN3_06B, window=64, num_lanes=3)
    assert (made.geometry.sink, made.geometry.window, made.geometry.chunk, made.num_lanes) == (4, 64, 32, 3)


def test_the_slab_decides_the_number_of_lanes() -> None:
    made = _plan(QWEN3_06B, window=64, slab_bytes=10 * LANE_SLOTS * 114_688 + 1)
    assert (made.geometry.num_slots, made.num_lanes) == (LANE_SLOTS, 10)


def test_the_default_window_is_what_the_model_has() -> None:
    assert _plan(TINY).geometry.window == 508
    assert _plan(TINY, num_lanes=1).geometry.window == 508
    assert _plan(QWEN3_06B, num_lanes=1).geometry.window == 4096


def test_the_default_window_shrinks_until_four_lanes_fit() -> None:
    with capture_logs() as logs:
        made = _plan(QWEN3_06B)
    assert made.num_lanes == 4
    assert made.geometry.num_slots * 4 * 114_688 <= DEFAULT_SLAB_BYTES
    assert (made.geometry.num_slots + 1) * 4 * 114_688 > DEFAULT_SLAB_BYTES
    assert logs[0]["window"] == made.geometry.window


def test_the_largest_window_is_that_of_which_two_lanes_fit() -> None:
    with capture_logs() as logs:
        made = _plan(QWEN3_06B, window="max", slab_bytes=3 << 30)
    assert made.num_lanes == 2
    assert made.geometry.window > 13_000
    assert made.geometry.num_slots * 2 * 114_688 <= 3 << 30 < (made.geometry.num_slots + 1) * 2 * 114_688
    assert (logs[0]["window"], logs[0]["slab_bytes"]) == (made.geometry.window, 3 << 30)
    assert _plan(QWEN3_06B, window="max").geometry.num_slots == DEFAULT_SLAB_BYTES // (2 * 114_688)


def test_the_largest_window_follows_the_number_of_lanes() -> None:
    made = _plan(QWEN3_06B, window="max", slab_bytes=3 << 30, num_lanes=5)
    assert made.num_lanes == 5
    assert made.geometry.num_slots == (3 << 30) // (5 * 114_688)
    assert _plan(QWEN3_06B, window="max", num_lanes=1).geometry.num_slots == DEFAULT_SLAB_BYTES // 114_688


def test_the_largest_window_is_not_larger_than_the_model() -> None:
    with capture_logs() as logs:
        made = _plan(TINY, window="max")
    assert (made.geometry.capacity, logs) == (512, [])
    assert made.num_lanes == DEFAULT_SLAB_BYTES // (made.geometry.num_slots * 2_048) > 2
    assert _plan(TINY, window="max", num_lanes=3).num_lanes == 3
    assert _plan(TINY, window="max", sink=511).geometry.window == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"window": "max", "slab_bytes": 100_000}, "2 lanes do not fit a slab of 100000 bytes with any window"),
        ({"window": "max", "slab_bytes": 300_000, "num_lanes": 3}, "3 lanes do not fit"),
        ({"window": "max", "sink": 512}, "exceed 512 positions"),
        ({"window": 509}, "exceed 512 positions, the model's max_position_embeddings; lower --window"),
        ({"sink": 512}, "exceed 512 positions, the model's max_position_embeddings; lower --window"),
        ({"window": 64, "slab_bytes": 1000}, "raise --slab-bytes or lower --window"),
        ({"slab_bytes": 50_000}, "raise --slab-bytes"),
    ],
)
def test_impossible_sizes_are_refused(given: dict[str, int | str], message: str) -> None:
    with pytest.raises(StartError, match=message):
        _plan(TINY, **given)


def test_settings_come_from_flags_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAKEYA_WORKER_SINK", "8")
    monkeypatch.setenv("KAKEYA_WORKER_WINDOW", "100")
    settings = WorkerSettings.parse(["--model", "/models/Qwen3-0.6B", "--window", "200", "--join", "a:1, b:2"])
    assert (settings.sink, settings.window, settings.join) == (8, 200, "a:1,b:2")
    assert (settings.model_name, settings.pool_name) == ("Qwen3-0.6B", "qwen3-0-6b")
    named = WorkerSettings.parse(["--model", "x", "--served-model-name", "My Model", "--pool", "p-1"])
    assert (named.model_name, named.pool_name) == ("My Model", "p-1")


def test_the_window_is_a_number_or_max(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAKEYA_WORKER_WINDOW", "max")
    assert WorkerSettings.parse(["--model", "m"]).window == "max"
    assert WorkerSettings.parse(["--model", "m", "--window", "3000"]).window == 3000
    both = WorkerSettings.parse(["--model", "m", "--lanes", "2", "--slab-bytes", "5000"])
    assert (both.window, both.lanes, both.slab_bytes) == ("max", 2, 5000)


def test_the_cache_lies_where_users_expect_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def directory(*flags: str) -> Path:
        return WorkerSettings.parse(["--model", "x", *flags]).cache_directory

    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/user")
    assert directory() == Path("/var/cache/user/kakeya")
    assert directory("--cache-dir", "~/k") == Path.home() / "k"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert directory() == Path.home() / ".cache" / "kakeya"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--model"),
        (["--model", "m", "--lanes", "1", "--slab-bytes", "5"], "not both"),
        (["--model", "m", "--window", "0"], "--window (KAKEYA_WORKER_WINDOW): Value error, must be at least 1, or max"),
        (["--model", "m", "--window", "most"], "'most' is neither a number of tokens nor max"),
        (["--model", "m", "--pool", "No!"], "not a pool name"),
        (["--model", "m", "--join", "nowhere"], "not HOST:PORT"),
        (["--model", "m", "--advertise", "host:0"], "--advertise needs the port"),
        (["--model", "m", "--weights", "int4"], "--weights"),
        (["--model", "m", "--kv-dtype", "int4"], "--kv-dtype"),
    ],
)
def test_bad_settings_are_one_line_and_status_2(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        WorkerSettings.parse(flags)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err
