"""What `kakeya bench session` is asked for: flags, variables, the preset."""

import re
from pathlib import Path

import pytest

from kakeya.bench.session import options
from kakeya.bench.session.options import Options
from kakeya.cli.flags.connection_flags import BadConnectionFlag

VARIABLES = {
    "KAKEYA_BENCH_ADDRESS": "there:1",
    "KAKEYA_BENCH_MODEL": "nano",
    "KAKEYA_BENCH_TOKENIZER": "some/where",
    "KAKEYA_BENCH_PROMPTS": "prompts.txt",
    "KAKEYA_BENCH_NO_CHAT_TEMPLATE": "1",
    "KAKEYA_BENCH_MAX_TOKENS": "7",
    "KAKEYA_BENCH_IGNORE_EOS": "1",
    "KAKEYA_BENCH_SINK": "0",
    "KAKEYA_BENCH_WINDOW": "64",
    "KAKEYA_BENCH_SEED": "3",
    "KAKEYA_BENCH_TIMEOUT_S": "1.5",
    "KAKEYA_BENCH_SESSIONS": "2",
    "KAKEYA_BENCH_TURNS": "40",
    "KAKEYA_BENCH_DURATION_S": "60",
    "KAKEYA_BENCH_TURN_SPACING_S": "0.5",
    "KAKEYA_BENCH_WARM_UP_TURNS": "0",
    "KAKEYA_BENCH_CONFIG": "config.json",
    "KAKEYA_BENCH_KV_DTYPE": "bfloat16",
    "KAKEYA_BENCH_EXACT": "1",
    "KAKEYA_BENCH_SKIP_GATE": "prefill_bounded, rss_bounded",
    "KAKEYA_BENCH_OUTPUT": "report",
    "KAKEYA_BENCH_CHECKPOINT_S": "2",
}


def parse(*flags: str, **variables: str) -> Options:
    return options.parse(flags, variables)


def refusal(capsys: pytest.CaptureFixture[str], *flags: str, **variables: str) -> str:
    with pytest.raises(SystemExit) as exit_:
        parse(*flags, **variables)
    assert exit_.value.code == 2
    return capsys.readouterr().err


def test_without_flags_it_plays_what_can_be_judged() -> None:
    asked = parse()
    assert (asked.num_sessions, asked.num_turns, asked.duration_seconds, asked.turn_spacing_seconds) == (
        1,
        120,
        None,
        0,
    )
    assert (asked.num_warm_up_turns, asked.checkpoint_seconds) == (5, 30.0)
    assert (asked.config, asked.kv_dtype) == (None, None)
    assert (asked.skipped, asked.is_exact) == (("exact",), False)
    assert re.fullmatch(r"kakeya-bench-session-\d{8}T\d{6}Z", str(asked.output))
    assert asked.connection.address == "localhost:50051"
    said = asked.conversation
    assert (said.model, said.tokenizer, said.num_random_tokens, said.prompts) == (None, None, None, None)
    assert (said.uses_template, said.ignores_eos, said.max_tokens) == (True, False, 64)
    assert (said.sink, said.window, said.seed, said.timeout_seconds) == (None, None, 0, 600.0)


def test_every_flag_has_a_variable() -> None:
    asked = parse(**VARIABLES)
    assert asked.connection.address == "there:1"
    said = asked.conversation
    assert (said.model, said.tokenizer, said.prompts) == ("nano", "some/where", Path("prompts.txt"))
    assert (said.uses_template, said.ignores_eos, said.max_tokens) == (False, True, 7)
    assert (said.sink, said.window, said.seed, said.timeout_seconds) == (0, 64, 3, 1.5)
    assert (asked.num_sessions, asked.num_turns, asked.duration_seconds) == (2, 40, 60.0)
    assert (asked.turn_spacing_seconds, asked.num_warm_up_turns, asked.checkpoint_seconds) == (0.5, 0, 2.0)
    assert (asked.config, asked.kv_dtype, asked.output) == (Path("config.json"), "bfloat16", Path("report"))
    assert (asked.skipped, asked.is_exact) == (("rss_bounded", "prefill_bounded"), True)
    assert parse(KAKEYA_BENCH_RANDOM_TOKENS="9").conversation.num_random_tokens == 9
    assert parse(KAKEYA_BENCH_PRESET="4h").duration_seconds == 14_400.0
    assert parse(KAKEYA_TOKENIZER="for/all").conversation.tokenizer == "for/all"


def test_the_help_names_every_variable(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        parse("--help")
    assert exit_.value.code == 0
    shown = capsys.readouterr().out
    for variable in [*VARIABLES, "KAKEYA_BENCH_RANDOM_TOKENS", "KAKEYA_BENCH_PRESET", "KAKEYA_API_KEY"]:
        assert variable in shown


def test_a_flag_wins_over_its_variable() -> None:
    asked = parse("--turns", "3", "--max-tokens", "9", "--output", "here", **VARIABLES)
    assert (asked.num_turns, asked.conversation.max_tokens, asked.output) == (3, 9, Path("here"))
    assert asked.num_sessions == 2, "from the variable"


def test_the_preset_is_four_hours_of_a_person() -> None:
    asked = parse("--preset", "4h")
    assert (asked.duration_seconds, asked.turn_spacing_seconds, asked.num_turns) == (14_400.0, 30.0, None)


def test_what_is_given_wins_over_the_preset() -> None:
    asked = parse("--preset", "4h", "--turn-spacing-s", "0", "--turns", "50")
    assert (asked.duration_seconds, asked.turn_spacing_seconds, asked.num_turns) == (14_400.0, 0.0, 50)
    asked = parse("--preset", "4h", KAKEYA_BENCH_DURATION_S="60")
    assert (asked.duration_seconds, asked.turn_spacing_seconds) == (60.0, 30.0)


def test_a_duration_alone_limits_no_turns() -> None:
    asked = parse("--duration-s", "60")
    assert (asked.duration_seconds, asked.num_turns) == (60.0, None)


def test_gates_are_skipped_in_their_order() -> None:
    asked = parse("--skip-gate", "errors", "--skip-gate", "kv_bounded", "--exact")
    assert (asked.skipped, asked.is_exact) == (("kv_bounded", "errors"), True)
    asked = parse("--skip-gate", "errors", KAKEYA_BENCH_SKIP_GATE="kv_bounded")
    assert asked.skipped == ("errors", "exact"), "the flag wins over its variable"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--turns", "0"], "--turns: '0' is not a whole number from 1 on"),
        (["--sessions", "0"], "--sessions: '0' is not a whole number from 1 on"),
        (["--warm-up-turns", "-1"], "--warm-up-turns"),
        (["--duration-s", "-1"], "--duration-s: '-1' is no number of seconds from 0 on"),
        (["--turn-spacing-s", "soon"], "--turn-spacing-s: 'soon' is no number of seconds"),
        (["--checkpoint-s", "inf"], "--checkpoint-s: 'inf' is no number of seconds"),
        (["--preset", "5h"], "--preset: invalid choice: '5h'"),
        (["--kv-dtype", "int3"], "--kv-dtype: invalid choice: 'int3'"),
        (["--skip-gate", "exact"], "--skip-gate: invalid choice: 'exact'"),
        (["--turn", "3"], "unrecognized arguments: --turn 3"),
        (["--random-tokens", "3", "--prompts", "a"], "--random-tokens goes without --prompts and --tokenizer"),
        (["--random-tokens", "3", "--tokenizer", "a"], "--random-tokens goes without --prompts and --tokenizer"),
    ],
)
def test_bad_flags(flags: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, *flags)
    assert said.startswith("usage: kakeya bench session ")
    assert says in said


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("KAKEYA_BENCH_TURNS", "many", "'many' is not a whole number"),
        ("KAKEYA_BENCH_PRESET", "5h", "KAKEYA_BENCH_PRESET: '5h' is none of 4h"),
        ("KAKEYA_BENCH_KV_DTYPE", "int3", "KAKEYA_BENCH_KV_DTYPE: 'int3' is none of "),
        ("KAKEYA_BENCH_SKIP_GATE", "errors,exact", "KAKEYA_BENCH_SKIP_GATE: 'exact' is none of "),
    ],
)
def test_bad_variables(variable: str, value: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert says in refusal(capsys, **{variable: value})


def test_the_tokenizer_of_all_commands_does_not_forbid_random_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse("--random-tokens", "3", KAKEYA_TOKENIZER="for/all").conversation.num_random_tokens == 3
    assert "goes without" in refusal(
        capsys, "--random-tokens", "3", KAKEYA_TOKENIZER="for/all", KAKEYA_BENCH_TOKENIZER="for/benches"
    )


def test_a_connection_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(BadConnectionFlag, match="No such file"):
        parse("--api-key-file", str(tmp_path / "none"))
