"""What `kakeya bench load` is asked for: flags and variables."""

import re
from pathlib import Path

import pytest

from kakeya.bench.load import options
from kakeya.bench.load.limits import Limits
from kakeya.bench.load.options import Options
from kakeya.cli.flags.connection_flags import BadConnectionFlag

VARIABLES = {
    "KAKEYA_BENCH_ADDRESS": "there:1",
    "KAKEYA_BENCH_MODEL": "nano",
    "KAKEYA_BENCH_PROMPTS": "prompts.txt",
    "KAKEYA_BENCH_MAX_TOKENS": "7",
    "KAKEYA_BENCH_SEED": "3",
    "KAKEYA_BENCH_SESSIONS": "3, 5,64",
    "KAKEYA_BENCH_WARM_UP_S": "0",
    "KAKEYA_BENCH_DURATION_S": "1.5",
    "KAKEYA_BENCH_THINK_TIME_S": "0.5",
    "KAKEYA_BENCH_TTFT_LIMIT_S": "3",
    "KAKEYA_BENCH_TPOT_LIMIT_S": "0.05",
    "KAKEYA_BENCH_GOAL_SHARE": "1",
    "KAKEYA_BENCH_JUDGE_GOODPUT": "1",
    "KAKEYA_BENCH_OUTPUT": "report",
}


def parse(*flags: str, **variables: str) -> Options:
    return options.parse(flags, variables)


def test_without_flags() -> None:
    asked = parse()
    assert asked.numbers_of_sessions == (1, 2, 4, 8)
    assert (asked.warm_up_seconds, asked.duration_seconds, asked.think_time_seconds) == (5.0, 60.0, 2.0)
    assert (asked.limits, asked.goal_share, asked.judges_goodput) == (Limits(2.0, 0.2), 0.9, False)
    assert re.fullmatch(r"kakeya-bench-load-\d{8}T\d{6}Z", str(asked.output))
    assert asked.connection.address == "localhost:50051"
    assert (asked.conversation.max_tokens, asked.conversation.seed) == (64, 0)


def test_every_flag_has_a_variable() -> None:
    asked = parse(**VARIABLES)
    assert (asked.connection.address, asked.conversation.model) == ("there:1", "nano")
    assert (asked.conversation.prompts, asked.conversation.max_tokens) == (Path("prompts.txt"), 7)
    assert (asked.numbers_of_sessions, asked.conversation.seed) == ((3, 5, 64), 3)
    assert (asked.warm_up_seconds, asked.duration_seconds, asked.think_time_seconds) == (0.0, 1.5, 0.5)
    assert (asked.limits, asked.goal_share, asked.judges_goodput) == (Limits(3.0, 0.05), 1.0, True)
    assert asked.output == Path("report")


def test_a_flag_wins_over_its_variable() -> None:
    asked = parse("--sessions", "2", "--goal-share", "0.5", **VARIABLES)
    assert (asked.numbers_of_sessions, asked.goal_share, asked.duration_seconds) == ((2,), 0.5, 1.5)


def test_the_help_names_every_variable(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        parse("--help")
    assert exit_.value.code == 0
    shown = capsys.readouterr().out
    for variable in VARIABLES:
        assert variable in shown


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--sessions", "0"], "--sessions: '0' is no list of whole numbers from 1 on"),
        (["--sessions", "1,"], "'1,' is no list of whole numbers"),
        (["--sessions", "1,two"], "'1,two' is no list of whole numbers"),
        (["--sessions", "1,4,4"], "each larger than the one before"),
        (["--sessions", "4,2"], "each larger than the one before"),
        (["--sessions", ""], "'' is no list of whole numbers"),
        (["--duration-s", "0"], "--duration-s must be above 0"),
        (["--warm-up-s", "-1"], "--warm-up-s: '-1' is no number of seconds from 0 on"),
        (["--think-time-s", "long"], "--think-time-s: 'long' is no number of seconds"),
        (["--ttft-limit-s", "nan"], "--ttft-limit-s: 'nan' is no number of seconds"),
        (["--goal-share", "0"], "--goal-share: '0' is no share above 0 and up to 1"),
        (["--goal-share", "90"], "--goal-share: '90' is no share"),
        (["--goal-share", "most"], "--goal-share: 'most' is no share"),
        (["--session", "3"], "unrecognized arguments: --session 3"),
        (["--random-tokens", "3", "--prompts", "a"], "--random-tokens goes without --prompts and --tokenizer"),
        (["--random-tokens", "3", "--tokenizer", "a"], "--random-tokens goes without --prompts and --tokenizer"),
    ],
)
def test_bad_flags(flags: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        parse(*flags)
    assert exit_.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("usage: kakeya bench load ")
    assert says in said


def test_the_tokenizer_of_all_commands_does_not_forbid_random_tokens() -> None:
    assert parse("--random-tokens", "3", KAKEYA_TOKENIZER="for/all").conversation.num_random_tokens == 3


def test_a_connection_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(BadConnectionFlag, match="No such file"):
        parse("--api-key-file", str(tmp_path / "none"))
