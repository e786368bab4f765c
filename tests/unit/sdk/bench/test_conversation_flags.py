"""The flags that every bench has."""

from argparse import ArgumentParser
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kakeya.bench import conversation_flags
from kakeya.cli.flags import connection_flags

DEFAULTS = {
    "model": None,
    "tokenizer": None,
    "num_random_tokens": None,
    "prompts": None,
    "uses_template": True,
    "max_tokens": 64,
    "ignores_eos": False,
    "sink": None,
    "window": None,
    "seed": 0,
    "timeout_seconds": 600.0,
}
FLAGS = (
    ("--model", "tiny", {"model": "tiny"}),
    ("--tokenizer", "dir", {"tokenizer": "dir"}),
    ("--random-tokens", "32", {"num_random_tokens": 32}),
    ("--prompts", "lines.txt", {"prompts": Path("lines.txt")}),
    ("--max-tokens", "1", {"max_tokens": 1}),
    ("--sink", "0", {"sink": 0}),
    ("--window", "1", {"window": 1}),
    ("--seed", "7", {"seed": 7}),
    ("--timeout-s", "0.5", {"timeout_seconds": 0.5}),
)
SWITCHES = (("--no-chat-template", {"uses_template": False}), ("--ignore-eos", {"ignores_eos": True}))


def _parser(environment: dict[str, str]) -> ArgumentParser:
    parser = ArgumentParser(prog="bench")
    conversation_flags.add(parser, environment, max_tokens=64)
    return parser


def _read(*argv: str, **environment: str) -> dict[str, Any]:
    return asdict(conversation_flags.read(_parser(environment).parse_args(argv)))


def _variable(flag: str) -> str:
    return "KAKEYA_BENCH_" + flag.removeprefix("--").upper().replace("-", "_")


def test_what_is_not_given() -> None:
    assert _read() == DEFAULTS


@pytest.mark.parametrize(("flag", "text", "changed"), FLAGS)
def test_each_flag_and_its_variable(flag: str, text: str, changed: dict[str, Any]) -> None:
    assert _read(flag, text) == DEFAULTS | changed
    assert _read(**{_variable(flag): text}) == DEFAULTS | changed


@pytest.mark.parametrize(("flag", "changed"), SWITCHES)
def test_each_switch_and_its_variable(flag: str, changed: dict[str, Any]) -> None:
    assert _read(flag) == DEFAULTS | changed
    assert _read(**{_variable(flag): "1"}) == DEFAULTS | changed


def test_the_tokenizer_of_every_command() -> None:
    assert _read(KAKEYA_TOKENIZER="all")["tokenizer"] == "all"
    assert _read(KAKEYA_TOKENIZER="all", KAKEYA_BENCH_TOKENIZER="bench")["tokenizer"] == "bench"


def test_the_runtime_is_named_as_for_every_command() -> None:
    def address(*argv: str, **environment: str) -> str:
        return connection_flags.read(_parser(environment).parse_args(argv), environment).address

    assert address() == "localhost:50051"
    assert address(KAKEYA_ADDRESS="a:1") == "a:1"
    assert address(KAKEYA_ADDRESS="a:1", KAKEYA_BENCH_ADDRESS="b:2") == "b:2"
    assert address("--address", "c:3", KAKEYA_BENCH_ADDRESS="b:2") == "c:3"


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("--random-tokens", "0"),
        ("--max-tokens", "0"),
        ("--sink", "-1"),
        ("--window", "0"),
        ("--seed", "x"),
        ("--timeout-s", "-1"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(flag: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    for argv, environment, named in (((flag, text), {}, flag), ((), {_variable(flag): text}, _variable(flag))):
        with pytest.raises(SystemExit) as raised:
            _read(*argv, **environment)
        assert raised.value.code == 2
        assert named in capsys.readouterr().err.splitlines()[-1]


def test_a_bench_adds_flags_of_its_own() -> None:
    parser = ArgumentParser()
    flags = conversation_flags.add(parser, {"KAKEYA_BENCH_RATE": "0.5"}, max_tokens=8)
    flags.add("rate", 1.0, "a second", type=float)
    given = parser.parse_args([])
    assert (given.rate, given.max_tokens) == (0.5, 8)


def test_help_names_a_variable_for_each_flag() -> None:
    text = " ".join(_parser({}).format_help().split())
    names = ["ADDRESS", *(_variable(flag).removeprefix("KAKEYA_BENCH_") for flag, *_ in (*FLAGS, *SWITCHES))]
    assert [name for name in names if f"KAKEYA_BENCH_{name}" not in text] == []
