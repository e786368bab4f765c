"""The shipped suite, run as the author of a backend runs it: by naming a plugin."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kakeya_worker.conformance.declaration import Declaration, Mode

_TOY = """
from kakeya_worker.conformance.declaration import Declaration, Mode
from kakeya_worker.engine.seams.verifier import ModelRefused

class Verifier:
    def __init__(self, model, **options):
        raise ModelRefused(f"{model} cannot run: this is a toy")

"""


# Of libraries that are installed for other tests: to import them takes longer than all the rest.
_NO_OTHER_PLUGINS = "-p no:langsmith_plugin -p no:schemathesis"


class Author:
    """Somebody who has written a verifier that refuses every model, installed it and run the suite."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def install(self, declaration: str | None) -> None:
        """The plugin `toy`, with the arguments of its declaration."""
        source = _TOY
        points = "[kakeya.verifier]\ntoy = toy_plugin:Verifier\n"
        if declaration is not None:
            source += f"DECLARATION = Declaration(modes=(Mode('float32', 'float32', 'float32'),), {declaration})\n"
            points += "[kakeya.verifier_conformance]\ntoy = toy_plugin:DECLARATION\n"
        (self._directory / "toy_plugin.py").write_text(source)
        distribution = self._directory / "toy-1.0.dist-info"
        distribution.mkdir()
        (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
        (distribution / "entry_points.txt").write_text(points)

    def run(self, *arguments: str) -> tuple[int, str]:
        """The exit status, and all that was said."""
        done = subprocess.run(
            [sys.executable, "-m", "kakeya_worker.conformance", *arguments],
            cwd=self._directory,
            env={**os.environ, "PYTHONPATH": str(self._directory), "PYTEST_ADDOPTS": _NO_OTHER_PLUGINS},
            capture_output=True,
            text=True,
            timeout=150,
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def author(tmp_path: Path) -> Author:
    return Author(tmp_path)


def test_help_names_the_plugins(author: Author) -> None:
    author.install("families=('qwen3',)")
    status, said = author.run("--help")
    assert status == 0
    assert "(installed: mlx, torch, toy)" in said


def test_no_backend(author: Author) -> None:
    assert author.run() == (2, author.run("-h")[1])
    status, said = author.run("-x")
    assert status == 2
    assert "name the backend before the option -x" in said


def test_an_unknown_backend(author: Author) -> None:
    status, said = author.run("nothing")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "no kakeya.verifier plugin is named 'nothing' (installed: mlx, torch)" in said


def test_a_backend_that_declares_nothing(author: Author) -> None:
    author.install(None)
    status, said = author.run("toy")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "no kakeya.verifier_conformance plugin is named 'toy'" in said


def test_a_backend_that_does_not_conform_is_red_and_what_it_leaves_out_is_said(author: Author) -> None:
    author.install("families=('qwen3', 'gemma')")
    status, said = author.run("toy", "-k", "test_unharmed or test_no_directory")
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "1 failed, 1 passed" in said
    assert "toy covers qwen3; in float32 (float32)" in said
    assert "toy does NOT cover llama, mistral, qwen2, smollm3" in said
    assert "this suite has NO checkpoint for gemma" in said
    assert "toy brings NO mutation key-angle-plus-one" in said


def test_an_expected_failure_is_reported_with_its_reason(author: Author) -> None:
    author.install("families=('qwen3',), expected_failures={'test_refusals.py::test_unharmed*toy*': 'it is a toy'}")
    status, said = author.run("toy", "-k", "test_unharmed")
    assert status == 0
    assert "toy is expected to fail test_refusals.py::test_unharmed*toy*: it is a toy" in said
    assert "1 xfailed" in said


def test_an_expected_failure_that_passes_is_red(author: Author) -> None:
    author.install("families=('qwen3',), expected_failures={'*::test_no_directory*': 'it is a toy'}")
    status, said = author.run("toy", "-k", "test_no_directory")
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "[XPASS(strict)] it is a toy" in said


def test_an_expected_failure_that_no_test_bears_is_an_error(author: Author) -> None:
    author.install("families=('qwen3',), expected_failures={'test_law.py::test_gone*': 'it is a toy'}")
    status, said = author.run("toy", "--collect-only", "-q")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "expected failures that no test bears: toy: test_law.py::test_gone*" in said


def test_an_expected_failure_without_a_reason_is_an_error(author: Author) -> None:
    author.install("families=('qwen3',), expected_failures={'test_law.py::*': ' '}")
    status, said = author.run("toy")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "the expected failure of 'test_law.py::*' has no reason" in said


def test_the_torch_backend_is_found_by_its_name(author: Author) -> None:
    status, said = author.run("torch", "-k", "far_down and qwen2")
    assert status == 0
    assert "3 passed" in said


@pytest.mark.heavy
def test_the_mlx_backend_is_found_by_its_name(author: Author) -> None:
    status, said = author.run("mlx", "-k", "far_down and qwen2")
    assert status == 0
    assert "3 passed" in said


def test_the_suite_needs_no_array_library() -> None:
    """Whoever writes a backend for another one has no torch."""
    source = """
import importlib, pkgutil, sys
import kakeya_worker.conformance as suite
for module in pkgutil.walk_packages(suite.__path__, suite.__name__ + "."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(sorted({"torch", "mlx", "transformers", "safetensors"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "[]\n"


def test_a_declaration_names_a_family_and_a_mode() -> None:
    with pytest.raises(ValueError, match="at least one family"):
        Declaration(families=(), modes=(Mode("int8", "bfloat16", "exact"),))
    with pytest.raises(ValueError, match="and one mode"):
        Declaration(families=("qwen3",), modes=())
    with pytest.raises(ValueError, match="tolerance 'about' is none of exact, float32, bfloat16"):
        Mode("float32", "float32", "about")
