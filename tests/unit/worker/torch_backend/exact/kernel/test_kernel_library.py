"""The kernel library: how it is built, shipped, found and chosen. What it computes is tested elsewhere."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import structlog

from kakeya_shared.process.service_process import StartError
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.loading import load_engine
from kakeya_worker.settings import WorkerSettings
from kakeya_worker.torch_backend.exact.kernel import build, interface, library

ROOT = Path(__file__).parents[6]
KERNEL = "kakeya_worker/torch_backend/exact/kernel"
VARIANT = """
#include "shared.h"
#define JOINED(a, b) a##b
#define JOIN(a, b) JOINED(a, b)
extern "C" int JOIN(answer_, KAKEYA_VARIANT)() { return ANSWER; }
"""
KERNEL_CPP = """
#define DECLARED(name) extern "C" int answer_##name();
#define LISTED(name) #name " "
#define SUMMED(name) + answer_##name()
KAKEYA_EACH_VARIANT(DECLARED)
#define API extern "C" __attribute__((visibility("default")))
API const char* kakeya_variants() { return KAKEYA_EACH_VARIANT(LISTED); }
API int sum_of_answers() { return 0 KAKEYA_EACH_VARIANT(SUMMED); }
"""


def _has_compiler() -> bool:
    try:
        return bool(build.find_compiler())
    except build.NoCompiler:
        return False


needs_compiler = pytest.mark.skipif(not _has_compiler(), reason="no C++ compiler here")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Of a kernel with all its files, and little in them."""
    directory = tmp_path / "sources"
    directory.mkdir()
    (directory / "variant.cpp").write_text(VARIANT)
    (directory / "kernel.cpp").write_text(KERNEL_CPP)
    (directory / "shared.h").write_text("#define ANSWER 7\n")
    return directory


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))  # which might have ziglang


@needs_compiler
def test_it_is_built_from_nothing_with_all_variants(sources: Path, tmp_path: Path) -> None:
    output = tmp_path / "new" / "_kernel.so"
    assert ": built " in build.build(output, sources)
    built = ctypes.CDLL(str(output))
    built.kakeya_variants.restype = ctypes.c_char_p
    names = built.kakeya_variants().decode().split()
    assert names == list(build.variants())
    assert built.sum_of_answers() == 7 * len(names)
    assert [path.name for path in output.parent.iterdir()] == ["_kernel.so"]


@needs_compiler
def test_what_is_up_to_date_is_left_alone(sources: Path, tmp_path: Path) -> None:
    output = tmp_path / "_kernel.so"
    build.build(output, sources)
    first = output.stat()
    assert build.build(output, sources) == f"{output} is up to date"
    assert output.stat() == first
    (sources / "shared.h").write_text("#define ANSWER 8\n")
    build.build(output, sources)
    assert output.stat().st_ino != first.st_ino
    assert ctypes.CDLL(str(output)).sum_of_answers() == 8 * len(build.variants())


@needs_compiler
def test_another_compiler_builds_anew(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "_kernel.so"
    build.build(output, sources)
    assert build.build(output, sources) == f"{output} is up to date"
    monkeypatch.setenv("CXX", _wrapper(tmp_path, 'case "$*" in --version) echo "c++ 99"; exit;; esac'))
    assert build.build(output, sources).endswith("with c++ 99")


@needs_compiler
def test_a_variant_that_the_compiler_does_not_know_is_left_out(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", _wrapper(tmp_path, 'case "$*" in *-mavx*) exit 1;; esac'))
    output = tmp_path / "_kernel.so"
    assert ": built portable with " in build.build(output, sources)
    assert ctypes.CDLL(str(output)).sum_of_answers() == 7


@needs_compiler
@pytest.mark.skipif("avx512vnni" not in build.variants(), reason="a variant of x86-64")
def test_a_variant_whose_instructions_are_not_known_is_left_out(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by an assembler older than its compiler."""
    refusing = 'for each in "$@"; do case "$each" in *.cpp) ! grep -q dpbusd "$each" || exit 1;; esac; done'
    monkeypatch.setenv("CXX", _wrapper(tmp_path, refusing))
    assert ": built avx2, portable with " in build.build(tmp_path / "_kernel.so", sources)


@needs_compiler
def test_a_command_with_other_flags_builds_anew(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, command = tmp_path / "_kernel.so", " ".join(build.find_compiler().command)
    build.build(output, sources)
    monkeypatch.setenv("CXX", f"{command} -g")
    assert ": built " in build.build(output, sources)
    assert build.build(output, sources) == f"{output} is up to date"


@needs_compiler
def test_no_command_brings_fast_math(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sources / "shared.h").write_text("#ifdef __FAST_MATH__\n#error fast math\n#endif\n#define ANSWER 7\n")
    monkeypatch.setenv("CXX", " ".join((*build.find_compiler().command, "-ffast-math")))
    assert ": built " in build.build(tmp_path / "_kernel.so", sources)


@needs_compiler
def test_a_compiler_that_fails_leaves_a_library_of_these_sources(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "_kernel.so"
    build.build(output, sources)
    before = output.read_bytes()
    monkeypatch.setenv("CXX", _wrapper(tmp_path, 'case "$*" in *-shared*) echo no linker; exit 1;; esac'))
    assert "no linker" in build.build(output, sources)
    assert output.read_bytes() == before
    (sources / "shared.h").write_text("#define ANSWER 8\n")
    with pytest.raises(build.BuildError, match="no linker"):
        build.build(output, sources)


@needs_compiler
def test_a_compiler_that_vanishes_is_named(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = _wrapper(tmp_path, 'case "$*" in --version) rm "$0"; echo "c++ 99"; exit;; esac')
    monkeypatch.setenv("CXX", script)
    with pytest.raises(build.BuildError, match="^" + re.escape(f"{script} cannot be run")):
        build.build(tmp_path / "_kernel.so", sources)


def test_a_command_that_is_none_is_named(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "g++ '-O3")
    with pytest.raises(build.BuildError, match=r"\$CXX is no command: No closing quotation"):
        build.build(tmp_path / "_kernel.so", sources)


def test_sources_that_cannot_be_read_are_named(sources: Path, tmp_path: Path) -> None:
    (sources / "gone.h").symlink_to(tmp_path / "nowhere")
    with pytest.raises(build.BuildError, match=r"gone\.h cannot be read"):
        build.build(tmp_path / "_kernel.so", sources)


def _wrapper(directory: Path, before: str) -> str:
    """A compiler that is the machine's, after a line of shell."""
    script, compiler = directory / "compiler", " ".join(build.find_compiler().command)
    script.write_text(f'#!/bin/sh\n{before}\nexec {compiler} "$@"\n')
    script.chmod(0o755)
    return str(script)


@needs_compiler
@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("variant.cpp", '#include "no_such.h"', "no_such.h"),
        ("kernel.cpp", "int never_defined(); int user() { return never_defined(); }", "never_defined"),
    ],
)
def test_what_the_compiler_says_is_passed_on(sources: Path, tmp_path: Path, file: str, text: str, message: str) -> None:
    (sources / file).write_text(text)
    with pytest.raises(build.BuildError, match=message):
        build.build(tmp_path / "_kernel.so", sources)
    assert not (tmp_path / "_kernel.so").exists()


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_the_cure_is_named(sources: Path, tmp_path: Path) -> None:
    with pytest.raises(build.NoCompiler, match=r"install a C\+\+ compiler .*then run `python -m kakeya_worker"):
        build.build(tmp_path / "_kernel.so", sources)


@needs_compiler
def test_a_prebuilt_library_needs_no_compiler(sources: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    output = tmp_path / "_kernel.so"
    build.build(output, sources)
    request.getfixturevalue("no_compiler")
    assert "is up to date; built by" in build.build(output, sources)
    (sources / "shared.h").write_text("#define ANSWER 8\n")
    with pytest.raises(build.NoCompiler):
        build.build(output, sources)


def test_a_compiler_that_is_asked_for_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -O9")
    with pytest.raises(build.NoCompiler, match="tried: no-such-compiler -O9"):
        build.find_compiler()


def test_a_directory_without_sources_is_refused(tmp_path: Path) -> None:
    with pytest.raises(build.BuildError, match="holds no sources"):
        build.build(tmp_path / "_kernel.so", tmp_path)


@needs_compiler
def test_a_place_that_cannot_be_written_is_named(sources: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(build.BuildError, match=r"_kernel\.so cannot be written"):
        build.build(tmp_path / "file" / "_kernel.so", sources)


@needs_compiler
def test_the_command_needs_the_standard_library_alone(sources: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-I",
        "-S",
        build.__file__,
        "--sources",
        str(sources),
        "--output",
        str(tmp_path / "k.so"),
    ]
    assert "built" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    failed = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "CXX": "no-such-compiler"})
    assert failed.returncode == 0, "it is up to date"
    (tmp_path / "k.so").unlink()
    failed = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "CXX": "no-such-compiler"})
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("the kernel is not built: no C++ compiler is found")


@pytest.fixture
def distribution(sources: Path, tmp_path: Path) -> Path:
    """The worker's, with the little sources for its own; built below without a library of before."""
    pytest.importorskip("hatchling")
    ours, copy = ROOT / "services" / "worker", tmp_path / "distribution"
    for file in ("pyproject.toml", "hatch_build.py", "README.md", f"src/{KERNEL}/build.py"):
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ours / file, copy / file)
    shutil.copytree(sources, copy / "src" / KERNEL, dirs_exist_ok=True)
    return copy


def _wheel(distribution: Path, output: Path, **environment: str) -> tuple[str, list[str], str]:
    """The wheel's name, what it holds of the kernel, and what the build says."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(output)],
        cwd=distribution,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    (wheel,) = output.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        return wheel.name, [name for name in archive.namelist() if name.startswith(KERNEL)], done.stderr


@needs_compiler
def test_the_wheel_brings_the_library(distribution: Path, tmp_path: Path) -> None:
    name, files, _ = _wheel(distribution, tmp_path / "wheels")
    assert f"{KERNEL}/_kernel.so" in files
    assert f"{KERNEL}/kernel.cpp" in files, "whoever lacks a library can build one"
    assert not name.endswith("none-any.whl")


def test_without_a_compiler_the_wheel_is_pure_and_the_build_warns_once(distribution: Path, tmp_path: Path) -> None:
    (distribution / "src" / KERNEL / "_kernel.so").write_text("of other sources")
    name, files, said = _wheel(distribution, tmp_path / "wheels", CXX="no-such-compiler")
    assert name.endswith("py3-none-any.whl")
    assert f"{KERNEL}/_kernel.so" not in files
    assert f"{KERNEL}/kernel.cpp" in files
    assert said.count("the kernel is not built") == 1


def test_a_library_that_cannot_be_removed_is_no_error(distribution: Path, tmp_path: Path) -> None:
    (distribution / "src" / KERNEL / "_kernel.so").mkdir()
    _, _, said = _wheel(distribution, tmp_path / "wheels", CXX="no-such-compiler")
    assert said.count("the kernel is not built") == 1


@needs_compiler
def test_this_installation_has_its_library() -> None:
    assert library.load() is not None
    assert library.variants()[-1] == "portable"


@pytest.mark.parametrize(("content", "problem"), [(None, "is not there"), ("text", "is no library of the kernel")])
def test_without_a_library_there_is_one_warning_that_names_the_cure(
    tmp_path: Path, content: str | None, problem: str
) -> None:
    path = tmp_path / "_kernel.so"
    if content is not None:
        path.write_text(content)
    with structlog.testing.capture_logs() as logs:
        assert library.load(path) is None
        assert library.load(path) is None
    (warning,) = logs
    assert (warning["log_level"], warning["cure"]) == ("warning", build.CURE)
    assert problem in warning["problem"]


@needs_compiler
def test_a_library_of_other_sources_is_not_loaded(sources: Path, tmp_path: Path) -> None:
    build.build(tmp_path / "_kernel.so", sources)
    with structlog.testing.capture_logs() as logs:
        assert library.load(tmp_path / "_kernel.so") is None
    assert "was built from other sources" in logs[0]["problem"]


def test_a_file_that_only_claims_to_be_the_library_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "_kernel.so"
    path.write_bytes(f"kakeya-kernel {build.digest()} some compiler\0".encode())
    with structlog.testing.capture_logs() as logs:
        assert library.load(path) is None
    assert str(path) in logs[0]["problem"]


def _choice(monkeypatch: pytest.MonkeyPatch, choice: str) -> str | None:
    monkeypatch.setenv(library.CHOICE_VARIABLE, choice)
    return library.chosen_variant()


@needs_compiler
def test_python_and_the_library_agree_on_structs_and_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    built = ctypes.CDLL(str(build.LIBRARY))
    interface.declare(built)
    for index, number in enumerate(interface._LAYOUT):
        other = [*interface._LAYOUT]
        other[index] = number + 1
        monkeypatch.setattr(interface, "_LAYOUT", other)
        with pytest.raises(OSError, match=r"not those of interface\.py"):
            interface.declare(built)
        monkeypatch.undo()


def test_the_best_variant_runs_unless_another_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    runnable = library.variants()
    assert _choice(monkeypatch, "off") is None
    assert _choice(monkeypatch, "auto") == _choice(monkeypatch, "") == (runnable[0] if runnable else None)
    assert [_choice(monkeypatch, name) for name in runnable] == list(runnable)


def test_a_variant_that_cannot_run_is_refused_with_those_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    can = ", ".join(("auto", *library.variants(), "off"))
    with pytest.raises(ModelRefused, match=f"kernel 'sse9' cannot run here; what can: {can}"):
        _choice(monkeypatch, "sse9")


def test_the_setting_reaches_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(library.CHOICE_VARIABLE, "portable")
    assert WorkerSettings.parse(["--model", "x"]).kernel == "portable"
    with pytest.raises(StartError):
        load_engine(WorkerSettings.parse(["--model", "/no/such/model", "--kernel", "off"]))
    assert os.environ[library.CHOICE_VARIABLE] == "off"
