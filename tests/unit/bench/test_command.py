"""`kakeya bench`: its menu; what every menu does is tested with that of `kakeya`."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from kakeya.cli import main
from kakeya.cli.commands import commands
from kakeya_bench import command as bench

MEASURES = "SUMMARY = 'what a model remembers'\ndef main(argv):\n    print('measured', *argv)\n    return 1\n"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, EntryPoint]:
    """A world in which exactly these benches are installed."""
    (tmp_path / "bench_quality.py").write_text(MEASURES)
    monkeypatch.syspath_prepend(tmp_path)
    installed = {"quality": EntryPoint("quality", "bench_quality", bench.GROUP)}
    find = commands.find
    monkeypatch.setattr(commands, "find", lambda *group: installed if group == (bench.GROUP,) else find(*group))
    return installed


def test_a_bench_is_found_gets_its_arguments_and_gives_the_status(
    installed: dict[str, EntryPoint], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["bench", "quality", "--quick"]) == 1
    assert capsys.readouterr().out == "measured --quick\n"
    assert main.main(["bench", "qualty"]) == 2
    assert capsys.readouterr().err == "kakeya bench: unknown bench 'qualty'; did you mean 'quality'?\n"


def test_help_lists_every_bench(installed: dict[str, EntryPoint], capsys: pytest.CaptureFixture[str]) -> None:
    for listed in ("  quality  what a model remembers", "  (none is installed)"):
        assert main.main(["bench", "--help"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "usage: kakeya bench BENCH [OPTIONS]"
        assert lines[lines.index("benches:") + 1] == listed
        installed.clear()
