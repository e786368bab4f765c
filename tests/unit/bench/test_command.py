"""`kakeya bench`: finding and running benches."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from kakeya.cli import main
from kakeya.cli.commands import commands
from kakeya_bench import command as bench

MODULES = {
    "quality": "SUMMARY = 'what a model remembers'\ndef main(argv):\n    print('measured', *argv)\n    return 1\n",
    "lacking": "import a_module_that_nobody_has\n",
    "old": "",
}


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A world in which exactly these benches are installed."""
    for name, source in MODULES.items():
        (tmp_path / f"bench_{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    installed = {name: EntryPoint(name, f"bench_{name}", bench.GROUP) for name in MODULES}
    installed["old"] = EntryPoint("old", "bench_old:a_bench_that_it_no_longer_has", bench.GROUP)
    find = commands.find
    monkeypatch.setattr(commands, "find", lambda *group: installed if group == (bench.GROUP,) else find(*group))


def test_help_lists_every_bench(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["bench", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "usage: kakeya bench BENCH [OPTIONS]"
    assert "benches:" in lines
    assert "  quality  what a model remembers" in lines
    assert "  lacking  (needs the module 'a_module_that_nobody_has', which is not installed)" in lines


def test_a_bench_gets_its_arguments_and_gives_the_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["bench", "quality", "--quick"]) == 1
    assert capsys.readouterr().out == "measured --quick\n"


def test_no_bench_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["bench"]) == 2
    assert "usage: kakeya bench BENCH" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("qualty", "kakeya bench: unknown bench 'qualty'; did you mean 'quality'?\n"),
        ("xyzzy", "kakeya bench: unknown bench 'xyzzy'; `kakeya bench --help` lists the benches\n"),
        ("--json", "kakeya bench: unknown option '--json'; `kakeya bench --help` lists the benches\n"),
    ],
)
def test_an_unknown_bench_is_a_usage_error(capsys: pytest.CaptureFixture[str], name: str, says: str) -> None:
    assert main.main(["bench", name]) == 2
    assert capsys.readouterr().err == says


def test_a_broken_bench_says_what_it_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["bench", "lacking"]) == 1
    assert capsys.readouterr().err.startswith("kakeya bench lacking: needs the module 'a_module_that_nobody_has'")
    assert main.main(["bench", "old"]) == 1
    assert capsys.readouterr().err.startswith("kakeya bench old: cannot be imported: module 'bench_old' has no ")


def test_where_no_bench_is_installed_the_help_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "find", lambda group: {})
    assert bench.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "  (none is installed)" in out
