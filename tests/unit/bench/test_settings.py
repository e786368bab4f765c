"""What the benches are asked for: flags and variables of each, who is compared with, and what makes no sense."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya.cli.flags.connection_flags import BadConnectionFlag
from kakeya_bench.compare.rival import Rival, read_rivals
from kakeya_bench.compare.settings import CompareSettings
from kakeya_bench.conversation.settings import RuntimeSettings
from kakeya_bench.load.settings import LoadSettings
from kakeya_bench.session.settings import SessionSettings
from tests.unit.bench.conversation.playing import PlainSettings, asked

RIVAL = "--rival=a=http://127.0.0.1:1/v1"
CHAT = "a b=http://h/v1,api=chat,model=m,tokenizer=/t"
SETTINGS: dict[type[RuntimeSettings], dict[str, tuple[Any, str, Any]]] = {
    PlainSettings: {
        "model": (None, "tiny", "tiny"),
        "tokenizer": (None, "dir", "dir"),
        "random_tokens": (None, "32", 32),
        "prompts": (None, "lines.txt", Path("lines.txt")),
        "no_chat_template": (False, "1", True),
        "max_tokens": (64, "1", 1),
        "ignore_eos": (False, "1", True),
        "sink": (None, "0", 0),
        "window": (None, "1", 1),
        "seed": (0, "7", 7),
        "timeout_s": (600.0, "0.5", 0.5),
    },
    SessionSettings: {
        "sessions": (1, "2", 2),
        "turns": (120, "40", 40),
        "duration_s": (None, "60", 60.0),
        "turn_spacing_s": (None, "0.5", 0.5),
        "preset": (None, "4h", "4h"),
        "warm_up_turns": (5, "0", 0),
        "config": (None, "config.json", Path("config.json")),
        "kv_dtype": (None, "bfloat16", "bfloat16"),
        "exact": (False, "1", True),
        "skip_gate": ((), "errors, rss_bounded", ("errors", "rss_bounded")),
        "checkpoint_s": (30.0, "2", 2.0),
    },
    LoadSettings: {
        "sessions": ((1, 2, 4, 8), "3, 5,64", (3, 5, 64)),
        "warm_up_s": (5.0, "0", 0.0),
        "duration_s": (60.0, "1.5", 1.5),
        "think_time_s": (2.0, "0.5", 0.5),
        "ttft_limit_s": (2.0, "3", 3.0),
        "tpot_limit_s": (0.2, "0.05", 0.05),
        "goal_share": (0.9, "1", 1.0),
        "judge_goodput": (False, "1", True),
    },
    CompareSettings: {
        "turns": (200, "300", 300),
        "new_tokens": (100, "5", 5),
        "max_tokens": (16, "2", 2),
        "warm_up_turns": (1, "0", 0),
        "marks": ((1, 10, 50, 200), "30, 2,2", (2, 30)),
        "config": (None, "c.json", Path("c.json")),
        "checkpoint_s": (30.0, "0", 0.0),
    },
}
"""The default of each; a text, and what it means."""


def variable(name: str) -> str:
    return f"KAKEYA_BENCH_{name.upper()}"


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in SETTINGS.items() for name in names])
def test_each_is_a_flag_and_a_variable(kind: type[RuntimeSettings], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    default, text, value = SETTINGS[kind][name]
    flag = f"--{name.replace('_', '-')}"
    assert getattr(kind.parse([]), name) == default
    assert getattr(kind.parse([flag] if value is True else [flag, text]), name) == value
    assert getattr(asked(kind, monkeypatch, **{variable(name): text}), name) == value


def test_a_flag_wins_over_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {variable("turns"): "40", variable("sessions"): "2", variable("skip_gate"): "prefill_bounded"}
    given = ("--turns", "3", "--skip-gate", "errors", "--skip-gate", "kv_bounded")
    found = asked(SessionSettings, monkeypatch, *given, **variables)
    assert (found.turns, found.sessions, found.skipped) == (3, 2, ("kv_bounded", "errors", "exact"))
    assert SessionSettings.parse(["--exact"]).skipped == ()


def test_what_was_asked_stands_in_the_report() -> None:
    flags = "--model m --prompts p --no-chat-template --max-tokens 3 --ignore-eos --sink 0 --window 9 --timeout-s 7"
    assert PlainSettings.parse(flags.split()).document() == {
        "model": "m",
        "tokenizer": None,
        "num_random_tokens": None,
        "prompts": "p",
        "uses_template": False,
        "max_tokens": 3,
        "ignores_eos": True,
        "sink": 0,
        "window": 9,
        "seed": 0,
        "timeout_seconds": 7.0,
    }
    assert CompareSettings.parse([]).document() == {
        "address": "localhost:50051",
        "model": None,
        "num_turns": 200,
        "num_new_tokens": 100,
        "max_tokens": 16,
        "num_warm_up_turns": 1,
        "sink": None,
        "window": None,
        "seed": 0,
        "timeout_seconds": 600.0,
    }


def test_the_runtime_and_the_tokenizer_are_named_as_for_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    everywhere = {"KAKEYA_ADDRESS": "a:1", "KAKEYA_TOKENIZER": "all"}
    here = everywhere | {"KAKEYA_BENCH_ADDRESS": "b:2", "KAKEYA_BENCH_TOKENIZER": "bench"}
    assert PlainSettings.parse([]).connection.address == "localhost:50051"
    for variables, address, tokenizer in ((everywhere, "a:1", "all"), (here, "b:2", "bench")):
        found = asked(PlainSettings, monkeypatch, **variables)
        assert (found.connection.address, found.tokenizer) == (address, tokenizer)
    assert asked(PlainSettings, monkeypatch, "--address", "c:3", **here).connection.address == "c:3"
    files = asked(PlainSettings, monkeypatch, KAKEYA_TLS_CA="ca", KAKEYA_TLS_CERT="cert", KAKEYA_TLS_KEY="key")
    assert (files.tls_ca, files.tls_cert, files.tls_key) == (Path("ca"), Path("cert"), Path("key"))
    with pytest.raises(BadConnectionFlag, match="ca: No such file"):
        assert asked(PlainSettings, monkeypatch, KAKEYA_TLS_CA="/nowhere/ca").connection


def test_the_report_has_a_place_that_is_named_for_the_time() -> None:
    found = LoadSettings.parse([])
    assert re.fullmatch(r"kakeya-bench-load-\d{8}T\d{6}Z", str(found.directory))
    assert found.directory == found.directory
    assert LoadSettings.parse(["--output", "here"]).directory == Path("here")


def test_random_tokens_go_without_texts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """KAKEYA_TOKENIZER is for all commands, and says nothing of this run."""
    random = ("--random-tokens", "3")
    assert asked(PlainSettings, monkeypatch, *random, KAKEYA_TOKENIZER="all").random_tokens == 3
    for argv, variables in ((["--prompts", "a"], {}), (["--tokenizer", "a"], {}), ([], {variable("tokenizer"): "a"})):
        with pytest.raises(SystemExit):
            asked(PlainSettings, monkeypatch, *random, *argv, **variables)
        assert "--random-tokens goes without --prompts and --tokenizer" in capsys.readouterr().err


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
    found = asked(SessionSettings, monkeypatch, *argv, **variables)
    assert (found.turns, found.duration_s, found.turn_spacing_s) == expected


@pytest.mark.parametrize(("turns", "marks"), [("1", (1,)), ("12", (1, 10, 12)), ("400", (1, 10, 50, 200, 400))])
def test_the_last_turn_is_a_mark(turns: str, marks: tuple[int, ...]) -> None:
    assert CompareSettings.parse(["--turns", turns]).marks == marks


def test_rivals_and_what_is_said_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    found = CompareSettings.parse(
        [
            RIVAL,
            "--rival",
            "b c=http://h,context=40,drop=7",
            "--fields",
            'b c={"x": 1, "y": [2, 3]}',
            '--fields=a={"y": null}',
            "--at-least",
            "a=20",
            "--at-least",
            "b c=.5",
            "--new-tokens",
            "5",
        ]
    )
    assert [(each.name, each.url, each.context, each.drop, each.fields) for each in found.rival] == [
        ("a", "http://127.0.0.1:1/v1", None, None, {"y": None}),
        ("b c", "http://h", 40, 7, {"x": 1, "y": [2, 3]}),
    ]
    assert found.at_least == {"a": 20.0, "b c": 0.5}
    found = CompareSettings.parse(
        [
            f"--rival={CHAT},messages=7",
            "--rival=b=http://h",
            "--at-most=a b=1.1+5",
            "--at-most=b=2",
            "--goes-on",
            "a b",
            "--cpu-at-most=a b=15",
        ]
    )
    assert found.at_most == {"a b": (1.1, 5.0), "b": (2.0, 0.0)}
    assert (found.goes_on, found.cpu_at_most) == (("a b",), {"a b": 15.0})
    texts = {"rival": "a=http://h,keep=2,b=http://i", "fields": 'a={"x": {}}, b={}', "at_least": "a=2, b=3"}
    found = asked(CompareSettings, monkeypatch, **{variable(name): text for name, text in texts.items()})
    assert [(each.name, each.keep, each.fields) for each in found.rival] == [("a", 2, {"x": {}}), ("b", 4, {})]
    assert found.at_least == {"a": 2.0, "b": 3.0}


def test_all_options_of_a_rival(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sk-123\n")
    text = f"vLLM 0.1=https://h/v1/,model=m/n,context=2048,keep=0,drop=7,every=mark,kv=64,pid=9,key-file={key}"
    [found] = CompareSettings.parse([f"--rival={text}"]).rival
    assert (found.name, found.pid, found.key, found.plays_every_turn) == ("vLLM 0.1", 9, "sk-123", False)
    assert "sk-123" not in repr(found)
    assert found.document() == {
        "kind": "rival",
        "url": "https://h/v1",
        "api": "completions",
        "model": "m/n",
        "tokenizer": None,
        "context": 2048,
        "keep": 0,
        "drop": 7,
        "kv_tokens": 64,
        "fields": {},
    }
    [chat] = CompareSettings.parse([f"--rival={CHAT},messages=7,kv=68"]).rival
    assert (chat.api, chat.tokenizer, chat.messages, chat.plays_every_turn) == ("chat", "/t", 7, True)
    assert (chat.document()["api"], chat.document()["tokenizer"]) == ("chat", "/t")
    [usual] = CompareSettings.parse(["--rival=a=http://h,context=2049,every=turn"]).rival
    assert (usual.document()["keep"], usual.document()["drop"]) == (4, 1024), "half of the context"


@pytest.mark.parametrize("content", [b"\n", b"sk\xff", b"sk\n123"])
def test_files_that_hold_no_key_are_not_quoted(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"it holds no key$"):
        read_rivals(f"a=http://h,key-file={file}")


@pytest.mark.parametrize(
    ("kind", "argv", "says"),
    [
        (PlainSettings, ["--random-tokens", "0"], "greater than or equal to 1"),
        (PlainSettings, ["--max-tokens", "0"], "greater than or equal to 1"),
        (PlainSettings, ["--sink", "-1"], "greater than or equal to 0"),
        (PlainSettings, ["--window", "0"], "greater than or equal to 1"),
        (PlainSettings, ["--seed", "x"], "valid integer"),
        (PlainSettings, ["--timeout-s", "-1"], "greater than 0"),
        (PlainSettings, ["--timeout-s", "inf"], "finite number"),
        (SessionSettings, ["--turns", "0"], "greater than or equal to 1"),
        (SessionSettings, ["--sessions", "0"], "greater than or equal to 1"),
        (SessionSettings, ["--warm-up-turns", "-1"], "greater than or equal to 0"),
        (SessionSettings, ["--duration-s", "-1"], "greater than or equal to 0"),
        (SessionSettings, ["--turn-spacing-s", "soon"], "valid number"),
        (SessionSettings, ["--checkpoint-s", "inf"], "finite number"),
        (SessionSettings, ["--checkpoint-s", "0"], "greater than 0"),
        (SessionSettings, ["--preset", "5h"], "'4h'"),
        (SessionSettings, ["--kv-dtype", "int3"], "'float32'"),
        (SessionSettings, ["--skip-gate", "exact"], "'kv_bounded', 'rss_bounded', 'prefill_bounded' or 'errors'"),
        (LoadSettings, ["--sessions", "0"], "Value error, '0' is no list of whole numbers"),
        (LoadSettings, ["--sessions", "1,"], "'1,' is no list of whole numbers from 1 on"),
        (LoadSettings, ["--sessions", "1,two"], "'1,two' is no list of whole numbers"),
        (LoadSettings, ["--sessions", "1,4,4"], "each larger than the one before"),
        (LoadSettings, ["--duration-s", "0"], "greater than 0"),
        (LoadSettings, ["--warm-up-s", "-1"], "greater than or equal to 0"),
        (LoadSettings, ["--ttft-limit-s", "nan"], "finite number"),
        (LoadSettings, ["--goal-share", "90"], "less than or equal to 1"),
        (CompareSettings, ["--marks", "0"], "greater than or equal to 1"),
        (CompareSettings, ["--rival", "kakeya=http://h"], "kakeya: name=kakeya: Value error, it cannot be a name"),
        (CompareSettings, ["--rival", "a/b=http://h"], "a/b: name=a/b: Value error, it cannot be a name"),
        (CompareSettings, ["--rival", "a"], "a: url=: Value error, it is no URL such as http://127.0.0.1:8080/v1"),
        (CompareSettings, ["--rival", "a=ftp://h"], "a: url=ftp://h: Value error, it is no URL"),
        (CompareSettings, ["--rival", "a=http://h,key=sk-1"], "a: key=sk-1: Extra inputs are not permitted"),
        (CompareSettings, ["--rival", "a=http://h,keep=1,keep=2"], "a: keep=2: it is there twice"),
        (CompareSettings, ["--rival", "a=http://h,every=day"], "a: every=day: Input should be 'turn' or 'mark'"),
        (CompareSettings, ["--rival", "a=http://h,key-file=/none"], "a: key-file=/none: Value error, No such file"),
        (CompareSettings, [RIVAL, "--fields", "a={"], "a: '{' is no JSON: "),
        (CompareSettings, [RIVAL, "--at-least", "a=much"], "--at-least (KAKEYA_BENCH_AT_LEAST): Input should be a val"),
        (CompareSettings, [RIVAL, "--at-least", "a=0"], "--at-least (KAKEYA_BENCH_AT_LEAST): Input should be greater"),
        (CompareSettings, [RIVAL, "--at-least", "a=inf"], "--at-least (KAKEYA_BENCH_AT_LEAST): Input should be a fin"),
        (CompareSettings, ["--turns", "9", "--marks", "1,10"], "--marks: there is no turn 10 in 9 turns"),
        (CompareSettings, [RIVAL, RIVAL, "--seed", "1"], "--rival: 'a' is there twice"),
        (CompareSettings, [RIVAL, "--at-least", "b=2"], "--at-least: there is no --rival 'b'"),
        (CompareSettings, [RIVAL, "--fields", "b={}"], "--fields: there is no --rival 'b'"),
        (CompareSettings, [RIVAL, "--at-most", "a=x+5"], "--at-most (KAKEYA_BENCH_AT_MOST): Input should be a valid"),
        (CompareSettings, [RIVAL, "--at-most", "a=1+-5"], "--at-most (KAKEYA_BENCH_AT_MOST): Input should be greater"),
        (CompareSettings, [RIVAL, "--at-most", "b=2"], "--at-most: there is no --rival 'b'"),
        (CompareSettings, [RIVAL, "--goes-on", "b"], "--goes-on: there is no --rival 'b'"),
        (CompareSettings, [RIVAL, "--goes-on", "a"], "--goes-on: it needs api=chat or api=responses, or me"),
        (CompareSettings, [f"--rival={CHAT}", "--cpu-at-most", "a b=9"], "--cpu-at-most: it needs api=chat or api="),
        (CompareSettings, ["--rival", "a=http://h,api=chat,tokenizer=t"], "a: Value error, api=chat needs model="),
        (CompareSettings, ["--rival", "a=http://h,api=chat,model=m"], "a: Value error, api=chat needs tokenizer="),
        (CompareSettings, ["--rival", f"{CHAT},every=mark"], "a b: Value error, api=chat plays every turn, an"),
        (CompareSettings, ["--rival", f"{CHAT},context=999"], "a b: Value error, api=chat plays every turn, an"),
        (CompareSettings, ["--rival", "a=http://h,messages=3"], "a: Value error, tokenizer= and messages= are of t"),
        (CompareSettings, ["--rival", "a=http://h,tokenizer=t"], "a: Value error, tokenizer= and messages= are of t"),
        (CompareSettings, ["--rival", f"{CHAT},messages=2"], "a b: messages=2: Input should be greater than or equal"),
        (CompareSettings, [f"{RIVAL},context=119"], "16 tokens of an answer do not fit a context of 119"),
    ],
)
def test_what_makes_no_sense_is_refused(
    kind: type[RuntimeSettings],
    argv: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One flag alone as a variable, too."""
    flag, name = argv[0], variable(argv[0].removeprefix("--").replace("-", "_"))
    is_alone = len(argv) == 2
    for flags, variables in ((argv, {}), *([([], {name: argv[1]})] if is_alone else [])):
        with pytest.raises(SystemExit) as raised:
            asked(kind, monkeypatch, *flags, **variables)
        assert raised.value.code == 2
        said = capsys.readouterr().err
        assert said.startswith(f"{kind.bench()}: error: " + (f"{flag} ({name}): " if is_alone else ""))
        assert says in said


@pytest.mark.parametrize(("kind", "flag"), [(SessionSettings, "--turn"), (LoadSettings, "--session")])
def test_flags_are_not_cut_short(kind: type[RuntimeSettings], flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        kind.parse([flag, "3"])
    assert f"unrecognized arguments: {flag} 3" in capsys.readouterr().err


@given(
    keep=st.integers(0, 8),
    drop=st.integers(1, 80),
    room=st.integers(0, 60),
    num_more=st.lists(st.integers(2, 12), min_size=1, max_size=40),
)
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
