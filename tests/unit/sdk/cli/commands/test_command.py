"""The `kakeya` command: finding and running subcommands."""

import importlib
import os
import runpy
import sys
from importlib.metadata import EntryPoint, version
from pathlib import Path
from types import SimpleNamespace

import pytest

from kakeya.cli import main
from kakeya.cli.commands import commands
from kakeya.cli.output import streams

MODULES = {
    "greet": "SUMMARY = 'say hello'\ndef main(argv):\n    print('hello', *argv)\n    return 3\n",
    "interrupted": "SUMMARY = 'never ends'\ndef main(argv):\n    raise KeyboardInterrupt\n",
    "lacking": "import a_module_that_nobody_has\n",
    "mistaken": "from sys import a_name_that_sys_has_not\n",
}


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A world in which exactly these commands are installed."""
    for name, source in MODULES.items():
        (tmp_path / f"command_{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    found = {name: EntryPoint(name, f"command_{name}", commands.GROUP) for name in MODULES}
    monkeypatch.setattr(commands, "find", lambda: found)


def test_help_lists_every_command_and_what_a_broken_one_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("--help", "-h", "help"):
        assert main.main([flag]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert "  greet        say hello" in lines
        assert "  lacking      (needs the module 'a_module_that_nobody_has', which is not installed)" in lines
        assert any(line.startswith("  mistaken     (cannot be imported: cannot import name") for line in lines)


def test_no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([]) == 2
    assert "usage: kakeya COMMAND" in capsys.readouterr().err


def test_a_command_gets_its_arguments_and_gives_the_status(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["kakeya", "greet", "world"])
    assert main.main() == 3
    assert capsys.readouterr().out == "hello world\n"


def test_help_command_passes_help_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["help", "greet"]) == 3
    assert capsys.readouterr().out == "hello --help\n"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gret", "kakeya: unknown command 'gret'; did you mean 'greet'?\n"),
        ("xyzzy", "kakeya: unknown command 'xyzzy'; `kakeya --help` lists the commands\n"),
        ("worker", "kakeya: 'worker' is not installed; install it with: pip install 'kakeya-worker[torch]'\n"),
        ("--verbose", "kakeya: unknown option '--verbose'; `kakeya --help` lists the commands\n"),
    ],
)
def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str], name: str, says: str) -> None:
    assert main.main([name]) == 2
    assert capsys.readouterr().err == says


def test_a_broken_command_says_what_it_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["lacking"]) == 1
    assert capsys.readouterr().err == (
        "kakeya lacking: needs the module 'a_module_that_nobody_has', which is not installed\n"
    )


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--version"]) == 0
    assert capsys.readouterr().out == f"kakeya {version('kakeya')}\n"


def test_ctrl_c_is_130() -> None:
    assert main.main(["interrupted"]) == 130


def test_a_reader_that_leaves_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert main.main(["--help"]) == 1
        output.flush()  # as the interpreter does at exit


def test_the_module_is_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["kakeya", "--version"])
    with pytest.raises(SystemExit) as raised:
        runpy.run_module("kakeya", run_name="__main__")
    assert raised.value.code == 0
    assert capsys.readouterr().out == f"kakeya {version('kakeya')}\n"


def test_chat_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert commands.summary(commands.find()["chat"]) == "talk with a model in the terminal"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("OSError(28, 'No space left on device')", "No space left on device"),
        ("PermissionError(13, 'Permission denied', b'/a\\nb')", r"/a\x0ab: Permission denied"),
        ("OSError('of a library')", "of a library"),
        ("UnicodeError('no text')", "no text"),
    ],
)
def test_what_the_system_refuses_is_one_line(
    error: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "command_greet.py").write_text(f"SUMMARY = ''\ndef main(argv):\n    raise {error}\n")
    sys.modules.pop("command_greet", None)
    importlib.invalidate_caches()
    with (tmp_path / "output").open("w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert main.main(["greet"]) == 1
        assert capsys.readouterr().err == f"kakeya greet: error: {says}\n"
        monkeypatch.setattr(sys, "flags", SimpleNamespace(dev_mode=True))
        with pytest.raises((OSError, UnicodeError)):
            main.main(["greet"])
    sys.modules.pop("command_greet", None)


def test_a_folder_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert streams.reason(FileNotFoundError(2, "No such file")) == "the current folder is not there any more"
    monkeypatch.chdir(tmp_path)
    assert streams.reason(FileNotFoundError(2, "No such file")) == "No such file"


def test_closed_streams_are_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    streams.prepare()
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        assert stream.name == os.devnull
        stream.close()
