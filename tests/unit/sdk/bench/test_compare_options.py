"""What `kakeya bench compare` is asked for: flags, variables, what makes no sense together."""

import re
from pathlib import Path

import pytest

from kakeya.bench.compare import options
from kakeya.bench.compare.options import Options

RIVAL = "--rival=a=http://127.0.0.1:1/v1"


def parse(*flags: str, **variables: str) -> Options:
    return options.parse(flags, variables)


def refusal(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    with pytest.raises(SystemExit) as exit_:
        parse(*flags)
    assert exit_.value.code == 2
    return capsys.readouterr().err


def test_without_flags() -> None:
    asked = parse()
    assert (asked.num_turns, asked.num_new_tokens, asked.max_tokens, asked.num_warm_up_turns) == (200, 100, 16, 1)
    assert asked.marks == (1, 10, 50, 200)
    assert (asked.rivals, asked.claims) == ((), {})
    assert (asked.model, asked.sink, asked.window, asked.seed, asked.timeout_seconds) == (None, None, None, 0, 600.0)
    assert (asked.config, asked.checkpoint_seconds) == (None, 30.0)
    assert re.fullmatch(r"kakeya-bench-compare-\d{8}T\d{6}Z", str(asked.output))
    assert asked.connection.address == "localhost:50051"


def test_all_flags() -> None:
    asked = parse(
        "--address", "h:1", "--turns", "30", "--new-tokens", "5", "--max-tokens", "2", "--warm-up-turns", "0",
        "--marks", "30, 2,2", "--sink", "0", "--window", "9", "--seed", "3", "--timeout-s", "1.5", "--config", "c.json",
        "--output", "out", "--checkpoint-s", "0", "--model", "m", RIVAL, "--rival", "b=http://h,context=40",
        "--fields", 'b={"x": 1}', "--at-least", "a=20", "--at-least", "b=0.5",
    )  # fmt: skip
    assert asked.connection.address == "h:1"
    assert (asked.num_turns, asked.num_new_tokens, asked.max_tokens, asked.num_warm_up_turns) == (30, 5, 2, 0)
    assert asked.marks == (2, 30)
    assert (asked.model, asked.sink, asked.window, asked.seed, asked.timeout_seconds) == ("m", 0, 9, 3, 1.5)
    assert (asked.config, asked.output, asked.checkpoint_seconds) == (Path("c.json"), Path("out"), 0.0)
    assert [(each.name, each.fields) for each in asked.rivals] == [("a", {}), ("b", {"x": 1})]
    assert asked.claims == {"a": 20.0, "b": 0.5}


def test_variables() -> None:
    asked = parse(KAKEYA_BENCH_TURNS="7", KAKEYA_BENCH_MARKS="3,7", KAKEYA_BENCH_NEW_TOKENS="9", KAKEYA_ADDRESS="h:2")
    assert (asked.num_turns, asked.marks, asked.num_new_tokens, asked.connection.address) == (7, (3, 7), 9, "h:2")


@pytest.mark.parametrize(
    ("turns", "marks"), [("1", (1,)), ("10", (1, 10)), ("12", (1, 10, 12)), ("400", (1, 10, 50, 200, 400))]
)
def test_the_last_turn_is_a_mark(turns: str, marks: tuple[int, ...]) -> None:
    assert parse("--turns", turns).marks == marks


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--turns", "9", "--marks", "1,10"], "--marks: there is no turn 10 in 9 turns"),
        (["--marks", "0"], "'0' is not a whole number from 1 on"),
        ([RIVAL, RIVAL], "--rival: 'a' is there twice"),
        ([RIVAL, "--at-least", "b=2"], "--at-least: there is no --rival 'b'"),
        ([RIVAL, "--fields", "b={}"], "--fields: there is no --rival 'b'"),
        ([RIVAL, "--at-least", "a=much"], "'a=much' is not NAME=FACTOR"),
        ([RIVAL, "--at-least", "a=0"], "'a=0' is not NAME=FACTOR"),
        ([RIVAL, "--at-least", "a=inf"], "'a=inf' is not NAME=FACTOR"),
        (["--at-least", "kakeya=2"], "'kakeya=2' is not NAME=FACTOR"),
        (
            [f"{RIVAL},context=119"],
            "--rival a: 4 kept, 100 new and 16 tokens of an answer do not fit a context of 119",
        ),
        (["--rival", "a"], "'' is no URL"),
    ],
)
def test_what_makes_no_sense(flags: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert says in refusal(capsys, *flags)


def test_a_turn_fits_to_the_token() -> None:
    assert parse(f"{RIVAL},context=120").rivals[0].context == 120
