"""What `kakeya bench compare` is asked for: flags, variables, who is compared with, what makes no sense together."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_bench.compare.settings import CompareSettings, Rival, read_rivals

RIVAL = "--rival=a=http://127.0.0.1:1/v1"


def parse(*flags: str) -> CompareSettings:
    return CompareSettings.parse([*flags])


def test_without_flags() -> None:
    asked = parse()
    assert asked.document() == {
        "address": "localhost:50051", "model": None, "num_turns": 200, "num_new_tokens": 100, "max_tokens": 16,
        "num_warm_up_turns": 1, "sink": None, "window": None, "seed": 0, "timeout_seconds": 600.0,
    }  # fmt: skip
    assert (asked.rival, asked.fields, asked.at_least) == ((), {}, {})
    assert (asked.config, asked.checkpoint_s) == (None, 30.0)
    assert str(asked.directory).startswith("kakeya-bench-compare-20")


def test_flags() -> None:
    asked = parse(
        "--turns", "30", "--new-tokens", "5", "--max-tokens", "2", "--warm-up-turns", "0", "--marks", "30, 2,2",
        "--config", "c.json", "--checkpoint-s", "0", RIVAL, "--rival", "b c=http://h,context=40,drop=7",
        "--fields", 'b c={"x": 1, "y": [2, 3]}', '--fields=a={"y": null}', "--at-least", "a=20", "--at-least", "b c=.5",
    )  # fmt: skip
    assert (asked.turns, asked.new_tokens, asked.max_tokens, asked.warm_up_turns) == (30, 5, 2, 0)
    assert (asked.marks, asked.at_least) == ((2, 30), {"a": 20.0, "b c": 0.5})
    assert [(each.name, each.url, each.context, each.drop, each.fields) for each in asked.rival] == [
        ("a", "http://127.0.0.1:1/v1", None, None, {"y": None}),
        ("b c", "http://h", 40, 7, {"x": 1, "y": [2, 3]}),
    ]
    assert (asked.config, asked.checkpoint_s) == (Path("c.json"), 0.0)


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"TURNS": "7", "MARKS": "3,7", "RIVAL": "a=http://h,keep=2,b=http://i", "FIELDS": 'a={"x": {}}, b={}'}
    for name, value in {**given, "AT_LEAST": "a=2, b=3"}.items():
        monkeypatch.setenv(f"KAKEYA_BENCH_{name}", value)
    asked = parse()
    assert (asked.turns, asked.marks, asked.at_least) == (7, (3, 7), {"a": 2.0, "b": 3.0})
    assert [(each.name, each.keep, each.fields) for each in asked.rival] == [("a", 2, {"x": {}}), ("b", 4, {})]


@pytest.mark.parametrize(("turns", "marks"), [("1", (1,)), ("12", (1, 10, 12)), ("400", (1, 10, 50, 200, 400))])
def test_the_last_turn_is_a_mark(turns: str, marks: tuple[int, ...]) -> None:
    assert parse("--turns", turns).marks == marks


def test_all_options_of_a_rival(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sk-123\n")
    text = f"vLLM 0.1=https://h/v1/,model=m/n,context=2048,keep=0,drop=7,every=mark,kv=64,pid=9,key-file={key}"
    [found] = parse(f"--rival={text}").rival
    assert (found.name, found.pid, found.key, found.plays_every_turn) == ("vLLM 0.1", 9, "sk-123", False)
    assert "sk-123" not in repr(found)
    assert found.document() == {
        "kind": "rival", "url": "https://h/v1", "model": "m/n", "context": 2048, "keep": 0, "drop": 7, "kv_tokens": 64,
        "fields": {},
    }  # fmt: skip
    [usual] = parse("--rival=a=http://h,context=2049,every=turn").rival
    assert (usual.document()["keep"], usual.document()["drop"]) == (4, 1024), "half of the context"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--turns", "9", "--marks", "1,10"], "--marks: there is no turn 10 in 9 turns"),
        (["--marks", "0"], "--marks (KAKEYA_BENCH_MARKS): Input should be greater than or equal to 1"),
        ([RIVAL, RIVAL], "--rival: 'a' is there twice"),
        ([RIVAL, "--at-least", "b=2"], "--at-least: there is no --rival 'b'"),
        ([RIVAL, "--fields", "b={}"], "--fields: there is no --rival 'b'"),
        ([RIVAL, "--fields", "a={"], "a: '{' is no JSON: "),
        ([RIVAL, "--at-least", "a=much"], "--at-least (KAKEYA_BENCH_AT_LEAST): Input should be a valid number"),
        ([RIVAL, "--at-least", "a=0"], "--at-least (KAKEYA_BENCH_AT_LEAST): Input should be greater than 0"),
        ([RIVAL, "--at-least", "a=inf"], "--at-least (KAKEYA_BENCH_AT_LEAST): Input should be a finite number"),
        ([f"{RIVAL},context=119"], "a: 4 kept, 100 new and 16 tokens of an answer do not fit a context of 119"),
        (["--rival", "kakeya=http://h"], "kakeya: name=kakeya: Value error, it cannot be a name"),
        (["--rival", "a/b=http://h"], "a/b: name=a/b: Value error, it cannot be a name"),
        (["--rival", "a"], "a: url=: Value error, it is no URL such as http://127.0.0.1:8080/v1"),
        (["--rival", "a=ftp://h"], "a: url=ftp://h: Value error, it is no URL"),
        (["--rival", "a=http://h,key=sk-1"], "a: key=sk-1: Extra inputs are not permitted"),
        (["--rival", "a=http://h,keep=1,keep=2"], "a: keep=2: it is there twice"),
        (["--rival", "a=http://h,every=day"], "a: every=day: Input should be 'turn' or 'mark'"),
        (["--rival", "a=http://h,key-file=/no/such"], "a: key-file=/no/such: Value error, No such file"),
    ],
)
def test_what_makes_no_sense(flags: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        parse(*flags)
    assert exit_.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"\n", b"sk\xff", b"sk\n123"])
def test_files_that_hold_no_key_are_not_quoted(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"it holds no key$"):
        read_rivals(f"a=http://h,key-file={file}")


@given(
    keep=st.integers(0, 8), drop=st.integers(1, 80), room=st.integers(0, 60),
    num_more=st.lists(st.integers(2, 12), min_size=1, max_size=40),
)  # fmt: skip
def test_whatever_is_said_it_fits(keep: int, drop: int, room: int, num_more: list[int]) -> None:
    context = keep + max(num_more) + room
    rival = Rival(name="a", url="http://h", context=context, keep=keep, drop=drop)
    held = 0
    for more in num_more:
        num_dropped = rival.num_to_drop(held, more)
        kept = min(keep, held)
        assert held - num_dropped >= kept, "the first are never dropped"
        assert held - num_dropped + more <= context
        assert num_dropped % drop == 0 or num_dropped == held - kept, "in blocks, or all there is"
        assert num_dropped == 0 or held + more > context, "never without need"
        assert num_dropped < drop or held + more - (num_dropped - drop) > context, "one block fewer is too few"
        held += more - num_dropped
    assert Rival(name="a", url="http://h").num_to_drop(held, 1 << 20) == 0, "without a context all of it is sent"
