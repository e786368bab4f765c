"""What every bench can be told."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kakeya.cli.flags.connection_flags import BadConnectionFlag
from tests.unit.bench.conversation.playing import PlainSettings, asked

DEFAULTS = {
    "model": None, "tokenizer": None, "num_random_tokens": None, "prompts": None, "uses_template": True,
    "max_tokens": 64, "ignores_eos": False, "sink": None, "window": None, "seed": 0, "timeout_seconds": 600.0,
}  # fmt: skip


read = partial(asked, PlainSettings)


def variable(flag: str) -> str:
    return "KAKEYA_BENCH_" + flag.removeprefix("--").upper().replace("-", "_")


@pytest.mark.parametrize(
    ("flag", "text", "changed"),
    [
        ("--model", "tiny", {"model": "tiny"}),
        ("--tokenizer", "dir", {"tokenizer": "dir"}),
        ("--random-tokens", "32", {"num_random_tokens": 32}),
        ("--prompts", "lines.txt", {"prompts": "lines.txt"}),
        ("--no-chat-template", "", {"uses_template": False}),
        ("--max-tokens", "1", {"max_tokens": 1}),
        ("--ignore-eos", "", {"ignores_eos": True}),
        ("--sink", "0", {"sink": 0}),
        ("--window", "1", {"window": 1}),
        ("--seed", "7", {"seed": 7}),
        ("--timeout-s", "0.5", {"timeout_seconds": 0.5}),
    ],
)
def test_each_flag_and_its_variable(
    flag: str, text: str, changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read(monkeypatch).document() == DEFAULTS
    assert read(monkeypatch, flag, *[text][: bool(text)]).document() == DEFAULTS | changed
    by_variable = read(monkeypatch, **{variable(flag): text or "1"})
    assert by_variable.document() == DEFAULTS | changed


def test_the_runtime_and_the_tokenizer_are_named_as_for_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    everywhere = {"KAKEYA_ADDRESS": "a:1", "KAKEYA_TOKENIZER": "all"}
    here = everywhere | {"KAKEYA_BENCH_ADDRESS": "b:2", "KAKEYA_BENCH_TOKENIZER": "bench"}
    assert read(monkeypatch).connection.address == "localhost:50051"
    for variables, address, tokenizer in ((everywhere, "a:1", "all"), (here, "b:2", "bench")):
        found = read(monkeypatch, **variables)
        assert (found.connection.address, found.tokenizer) == (address, tokenizer)
    assert read(monkeypatch, "--address", "c:3", **here).connection.address == "c:3"
    files = read(monkeypatch, KAKEYA_TLS_CA="ca", KAKEYA_TLS_CERT="cert", KAKEYA_TLS_KEY="key")
    assert (files.tls_ca, files.tls_cert, files.tls_key) == (Path("ca"), Path("cert"), Path("key"))
    with pytest.raises(BadConnectionFlag, match="ca: No such file"):
        assert read(monkeypatch, KAKEYA_TLS_CA="/nowhere/ca").connection


def test_the_report_has_a_place_that_is_named_for_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(monkeypatch)
    assert str(found.directory).startswith("kakeya-bench-plain-2")
    assert found.directory == found.directory
    assert read(monkeypatch, "--output", "here").directory == Path("here")


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("--random-tokens", "0"),
        ("--max-tokens", "0"),
        ("--sink", "-1"),
        ("--window", "0"),
        ("--seed", "x"),
        ("--timeout-s", "-1"),
        ("--timeout-s", "inf"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(
    flag: str, text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for argv, variables in (([flag, text], {}), ([], {variable(flag): text})):
        with pytest.raises(SystemExit) as raised:
            read(monkeypatch, *argv, **variables)
        assert raised.value.code == 2
        assert capsys.readouterr().err.startswith(f"kakeya bench plain: error: {flag} ({variable(flag)}): ")


def test_random_tokens_go_without_texts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """KAKEYA_TOKENIZER is for all commands, and says nothing of this run."""
    random = ("--random-tokens", "3")
    assert read(monkeypatch, *random, KAKEYA_TOKENIZER="all").random_tokens == 3
    for argv, variables in (
        (["--prompts", "a"], {}),
        (["--tokenizer", "a"], {}),
        ([], {"KAKEYA_BENCH_TOKENIZER": "a"}),
    ):
        with pytest.raises(SystemExit):
            read(monkeypatch, *random, *argv, **variables)
        assert "--random-tokens goes without --prompts and --tokenizer" in capsys.readouterr().err
