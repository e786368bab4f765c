"""What `kakeya bench load` is asked for: flags and variables."""

import re

import pytest

from tests.unit.bench.load.sweeping import asked

VARIABLES = {
    "SESSIONS": "3, 5,64", "WARM_UP_S": "0", "DURATION_S": "1.5", "THINK_TIME_S": "0.5", "TTFT_LIMIT_S": "3",
    "TPOT_LIMIT_S": "0.05", "GOAL_SHARE": "1", "JUDGE_GOODPUT": "1",
}  # fmt: skip


def test_without_flags() -> None:
    found = asked()
    assert found.sessions == (1, 2, 4, 8)
    assert (found.warm_up_s, found.duration_s, found.think_time_s, found.level_seconds) == (5.0, 60.0, 2.0, 65.0)
    assert (found.ttft_limit_s, found.tpot_limit_s, found.goal_share, found.judge_goodput) == (2.0, 0.2, 0.9, False)
    assert re.fullmatch(r"kakeya-bench-load-\d{8}T\d{6}Z", str(found.directory))


def test_every_flag_has_a_variable_and_wins_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(f"KAKEYA_BENCH_{name}", value)
    found = asked("--goal-share", "0.5")
    assert (found.sessions, found.warm_up_s, found.duration_s, found.think_time_s) == ((3, 5, 64), 0.0, 1.5, 0.5)
    assert (found.ttft_limit_s, found.tpot_limit_s, found.goal_share, found.judge_goodput) == (3.0, 0.05, 0.5, True)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--sessions", "0"], "--sessions (KAKEYA_BENCH_SESSIONS): Value error, '0' is no list of whole numbers"),
        (["--sessions", "1,"], "'1,' is no list of whole numbers from 1 on"),
        (["--sessions", "1,two"], "'1,two' is no list of whole numbers"),
        (["--sessions", "1,4,4"], "each larger than the one before"),
        (["--duration-s", "0"], "--duration-s (KAKEYA_BENCH_DURATION_S): Input should be greater than 0"),
        (["--warm-up-s", "-1"], "Input should be greater than or equal to 0"),
        (["--ttft-limit-s", "nan"], "Input should be a finite number"),
        (["--goal-share", "90"], "Input should be less than or equal to 1"),
        (["--session", "3"], "unrecognized arguments: --session 3"),
    ],
)
def test_bad_flags(flags: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        asked(*flags)
    assert exit_.value.code == 2
    said = capsys.readouterr().err
    assert "kakeya bench load: error: " in said
    assert says in said
