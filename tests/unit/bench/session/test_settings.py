"""Flags and variables of `kakeya bench session`; those that all benches have are tested with them."""

from functools import partial
from pathlib import Path

import pytest

from kakeya_bench.session.settings import SessionSettings
from tests.unit.bench.conversation.playing import asked

_GIVEN = {
    "SESSIONS": "2", "TURNS": "40", "DURATION_S": "60", "TURN_SPACING_S": "0.5", "WARM_UP_TURNS": "0",
    "CONFIG": "config.json", "KV_DTYPE": "bfloat16", "EXACT": "1", "SKIP_GATE": "prefill_bounded, rss_bounded",
    "CHECKPOINT_S": "2", "OUTPUT": "report",
}  # fmt: skip
VARIABLES = {f"KAKEYA_BENCH_{name}": value for name, value in _GIVEN.items()}
parse = partial(asked, SessionSettings)


def length(found: SessionSettings) -> tuple[int | None, float | None, float | None]:
    return found.turns, found.duration_s, found.turn_spacing_s


def test_what_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    found = parse(monkeypatch)
    assert (found.sessions, length(found), found.warm_up_turns) == (1, (120, None, None), 5)
    assert (found.config, found.kv_dtype, found.checkpoint_s) == (None, None, 30.0)
    assert found.skipped == ("exact",)


def test_every_flag_has_a_variable_and_wins_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = parse(monkeypatch, **VARIABLES)
    assert (found.sessions, length(found), found.warm_up_turns) == (2, (40, 60.0, 0.5), 0)
    assert (found.config, found.kv_dtype, found.checkpoint_s) == (Path("config.json"), "bfloat16", 2.0)
    assert (found.skipped, found.directory) == (("rss_bounded", "prefill_bounded"), Path("report"))
    found = parse(monkeypatch, "--turns", "3", "--skip-gate", "errors", "--skip-gate", "kv_bounded", **VARIABLES)
    assert (found.turns, found.sessions, found.skipped) == (3, 2, ("kv_bounded", "errors"))


@pytest.mark.parametrize(
    ("argv", "variables", "expected"),
    [
        (["--preset", "4h"], {}, (None, 14_400.0, 30.0)),
        ([], {"KAKEYA_BENCH_PRESET": "4h"}, (None, 14_400.0, 30.0)),
        (["--preset", "4h", "--turn-spacing-s", "0", "--turns", "50"], {}, (50, 14_400.0, 0.0)),
        (["--preset", "4h"], {"KAKEYA_BENCH_DURATION_S": "60"}, (None, 60.0, 30.0)),
        (["--duration-s", "60"], {}, (None, 60.0, None)),
    ],
)
def test_a_preset_stands_for_what_is_not_given(
    argv: list[str], variables: dict[str, str], expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert length(parse(monkeypatch, *argv, **variables)) == expected


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("TURNS", "0", "greater than or equal to 1"),
        ("SESSIONS", "0", "greater than or equal to 1"),
        ("WARM_UP_TURNS", "-1", "greater than or equal to 0"),
        ("DURATION_S", "-1", "greater than or equal to 0"),
        ("TURN_SPACING_S", "soon", "valid number"),
        ("CHECKPOINT_S", "inf", "finite number"),
        ("CHECKPOINT_S", "0", "greater than 0"),
        ("PRESET", "5h", "'4h'"),
        ("KV_DTYPE", "int3", "'float32'"),
        ("SKIP_GATE", "exact", "'kv_bounded', 'rss_bounded', 'prefill_bounded' or 'errors'"),
    ],
)
def test_what_makes_no_sense_is_refused(
    name: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flag = f"--{name.lower().replace('_', '-')}"
    for argv, variables in (([flag, value], {}), ([], {f"KAKEYA_BENCH_{name}": value})):
        with pytest.raises(SystemExit) as raised:
            parse(monkeypatch, *argv, **variables)
        assert raised.value.code == 2
        said = capsys.readouterr().err
        assert said.startswith(f"kakeya bench session: error: {flag} (KAKEYA_BENCH_{name}): ")
        assert says in said


def test_flags_are_not_cut_short(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(monkeypatch, "--turn", "3")
    assert "unrecognized arguments: --turn 3" in capsys.readouterr().err
