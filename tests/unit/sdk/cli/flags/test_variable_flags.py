"""Flags and their variables."""

from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Any

import pytest

from kakeya.cli.flags.variable_flags import VariableFlags, seconds, whole_number

GATES = ("memory", "latency", "exact")


def _parser(**environment: str) -> ArgumentParser:
    parser = ArgumentParser(prog="program")
    flags = VariableFlags(parser, "PRE_", environment)
    flags.add("num-turns", 9, "turns, 100 % of them", type=whole_number(1), metavar="N")
    flags.add("rate", None, "a second", type=float)
    flags.add("name", "nobody", "of whom")
    flags.add("place", None, "a directory", type=Path)
    flags.add("preset", "short", "how long", choices=["short", "long"])
    flags.switch("plain", "100 % plain", "NO_COLOR")
    flags.switch("quick", "in a hurry")
    flags.add_repeated("skip", "leave it out, 100 %", choices=GATES)
    return parser


def _read(*argv: str, **environment: str) -> dict[str, Any]:
    return vars(_parser(**environment).parse_args(argv))


def _refused(capsys: pytest.CaptureFixture[str], *argv: str, **environment: str) -> str:
    """What the usage error says."""
    with pytest.raises(SystemExit) as raised:
        _read(*argv, **environment)
    assert raised.value.code == 2
    output = capsys.readouterr()
    assert output.out == ""
    return output.err.splitlines()[-1].removeprefix("program: error: ")


def test_defaults() -> None:
    assert _read() == {
        "num_turns": 9, "rate": None, "name": "nobody", "place": None, "preset": "short", "plain": False,
        "quick": False, "skip": [],
    }  # fmt: skip


def test_a_variable_wins_over_the_default() -> None:
    environment = {"PRE_NUM_TURNS": "3", "PRE_RATE": "0.5", "PRE_NAME": "Ben", "PRE_PLACE": "a/b", "PRE_PRESET": "long"}
    given = _read(**environment)
    expected = {"num_turns": 3, "rate": 0.5, "name": "Ben", "place": Path("a/b"), "preset": "long"}
    assert {name: given[name] for name in expected} == expected
    assert type(given["name"]) is str


def test_a_flag_wins_over_its_variable() -> None:
    assert _read("--num-turns", "4", PRE_NUM_TURNS="3")["num_turns"] == 4
    assert _read("--preset", "short", PRE_PRESET="long")["preset"] == "short"


def test_an_empty_variable_is_none() -> None:
    assert _read(PRE_NUM_TURNS="", PRE_NAME="", PRE_PRESET="", PRE_SKIP="", PRE_QUICK="") == _read()


@pytest.mark.parametrize(
    ("variable", "text", "says"),
    [
        ("PRE_NUM_TURNS", "0", "--num-turns: PRE_NUM_TURNS: '0' is not a whole number from 1 on"),
        ("PRE_RATE", "fast", "--rate: PRE_RATE: could not convert string to float: 'fast'"),
        ("PRE_PRESET", "longer", "--preset: PRE_PRESET: 'longer' is none of short, long"),
        ("PRE_SKIP", "memory,speed", "--skip: PRE_SKIP: 'speed' is none of memory, latency, exact"),
    ],
)
def test_a_wrong_variable_is_a_usage_error_that_names_it(
    variable: str, text: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _refused(capsys, **{variable: text}) == f"argument {says}"


@pytest.mark.parametrize(
    ("argv", "variable"),
    [
        (("--num-turns", "4"), "PRE_NUM_TURNS"),
        (("--rate", "4"), "PRE_RATE"),
        (("--preset", "long"), "PRE_PRESET"),
        (("--skip", "exact"), "PRE_SKIP"),
    ],
)
def test_a_wrong_variable_does_not_matter_where_its_flag_is_given(argv: tuple[str, str], variable: str) -> None:
    assert _read(*argv, **{variable: "wrong"}) == _read(*argv)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--num-turns", "0"), "argument --num-turns: '0' is not a whole number from 1 on"),
        (("--rate", "fast"), "argument --rate: invalid float value: 'fast'"),
        (("--preset", "longer"), "argument --preset: invalid choice: 'longer' (choose from "),
        (("--skip", "speed"), "argument --skip: invalid choice: 'speed' (choose from "),
    ],
)
def test_a_wrong_flag_is_a_usage_error_that_names_it(
    argv: tuple[str, str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _refused(capsys, *argv, PRE_NUM_TURNS="7", PRE_PRESET="long", PRE_SKIP="exact").startswith(says)


def test_a_switch_is_on_where_a_variable_is_set() -> None:
    assert _read("--quick")["quick"]
    assert _read(PRE_QUICK="1")["quick"]
    assert _read(PRE_PLAIN="1")["plain"]
    assert _read(NO_COLOR="1")["plain"], "another variable"
    assert not _read(NO_COLOR="1")["quick"]


def test_a_repeated_flag_gathers_what_is_given() -> None:
    assert _read("--skip", "latency", "--skip", "memory")["skip"] == ["latency", "memory"]
    assert _read(PRE_SKIP=" memory, exact,,")["skip"] == ["memory", "exact"]
    assert _read("--skip", "latency", "--skip", "exact", PRE_SKIP="memory")["skip"] == ["latency", "exact"]


def test_a_parser_may_be_used_again() -> None:
    parser = _parser()
    assert parser.parse_args(["--skip", "exact"]).skip == ["exact"]
    assert parser.parse_args(["--skip", "memory"]).skip == ["memory"]
    assert parser.parse_args([]).skip == []


def test_help_shows_percent_signs_defaults_and_variables() -> None:
    text = " ".join(_parser(PRE_NAME="50 %s").format_help().split())
    assert "--num-turns N turns, 100 % of them. Default 9 [PRE_NUM_TURNS]" in text
    assert "--rate RATE a second [PRE_RATE]" in text
    assert "--plain 100 % plain [PRE_PLAIN, NO_COLOR]" in text
    assert "--quick in a hurry [PRE_QUICK]" in text
    assert "leave it out, 100 %; may be repeated, in the variable with commas [PRE_SKIP]" in text


def test_help_is_shown_whatever_the_variables_say(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        _read("--help", PRE_NUM_TURNS="x", PRE_PRESET="x", PRE_SKIP="x")
    assert raised.value.code == 0
    assert capsys.readouterr().out.startswith("usage: program")


def test_a_type_without_a_name_may_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    class Doubled:
        def __call__(self, text: str) -> int:
            return 2 * int(text)

        def __repr__(self) -> str:
            return "doubled"

    parser = ArgumentParser(prog="program")
    VariableFlags(parser, "PRE_", {"PRE_SIZE": "4"}).add("size", None, "in all", type=Doubled())
    assert parser.parse_args([]).size == 8
    with pytest.raises(SystemExit):
        parser.parse_args(["--size", "x"])
    assert capsys.readouterr().err.endswith("argument --size: invalid doubled value: 'x'\n")


@pytest.mark.parametrize("text", ["2", "10", "007"])
def test_a_whole_number(text: str) -> None:
    assert whole_number(2)(text) == int(text)


@pytest.mark.parametrize("text", ["1", "-2", "+2", "2.0", " 2", "2 ", "", "x", "²", "1e3", "2_0"])
def test_no_whole_number(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is not a whole number from 2 on"):
        whole_number(2)(text)


@pytest.mark.parametrize("text", ["0", "0.5", "1e3", "14400"])
def test_seconds(text: str) -> None:
    assert seconds(text) == float(text)


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "1e400", "-0.001", "", "1s"])
def test_no_seconds(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is no number of seconds from 0 on"):
        seconds(text)
