"""Builds the kernel library with the C++ compiler that is found here, unless it is up to date.

    python -m kakeya_worker.torch_backend.exact.kernel [--output FILE] [--sources DIRECTORY]

The compiler is $CXX, else c++, g++ or clang++, else that of the Python package ziglang. $CXXFLAGS is not read: what may
stand there (-march=native, -ffast-math) changes bits. This file needs the standard library alone, since the build hook
of the distribution runs it where nothing else of the worker can be imported.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).resolve().parent
LIBRARY = SOURCES / "_kernel.so"
CURE = (
    "install a C++ compiler (g++, clang++, or `pip install ziglang`), then run "
    "`python -m kakeya_worker.torch_backend.exact.kernel`"
)
# No FMA and no fast math, whatever $CXX says: bits are the law. Integers wrap on purpose. The library's own functions
# alone are visible, so that it meets no other's.
_FLAGS = (
    *("-std=c++20", "-O3", "-fPIC", "-pthread", "-fno-fast-math", "-ffp-contract=off", "-fno-math-errno"),
    *("-fwrapv", "-fvisibility=hidden", "-fno-rtti"),
)
# What is missing in it shows when it is linked, not when it is loaded; so it always is on macOS.
_LINK_FLAGS = ("-shared", "-pthread", "-fno-fast-math", *(() if sys.platform == "darwin" else ("-Wl,-z,defs",)))
_AVX512 = tuple(f"-mavx512{part}" for part in ("f", "bw", "vl", "dq", "vnni"))
_VARIANTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "x86_64": {"avx512vnni": (*_AVX512, "-mprefer-vector-width=512"), "avx2": ("-mavx2", "-mf16c")}
}
# What the compiler's assembler must know, too.
_INSTRUCTIONS = {
    "avx512vnni": "__m512i sums(__m512i a) { return _mm512_dpbusd_epi32(a, a, a); }",
    "avx2": "__m256 sums(__m256i a) { return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_maddubs_epi16(a, a))); }",
}
_STAMP = re.compile(rb"kakeya-kernel ([0-9a-f]{64}) ([^\0]+)\0")


class BuildError(Exception):
    """The library cannot be built; the message says why."""


class NoCompiler(BuildError):
    """There is no C++ compiler; the message says how to get one."""


class Compiler(NamedTuple):
    """A C++ compiler that runs here: how it is called, and the first line of its `--version`."""

    command: tuple[str, ...]
    version: str

    def __str__(self) -> str:
        return f"{shlex.join(self.command)}: {self.version}"


class Unit(NamedTuple):
    """What one call of the compiler makes an object file of."""

    name: str
    source: Path
    flags: tuple[str, ...]


class Stamp(NamedTuple):
    """What a library was built of and by."""

    digest: str
    compiler: str


def variants(machine: str = platform.machine()) -> dict[str, tuple[str, ...]]:
    """The kernel's variants for a processor architecture, best first, with the flags of each."""
    return {**_VARIANTS.get({"AMD64": "x86_64"}.get(machine, machine), {}), "portable": ()}


def digest(sources: Path = SOURCES, machine: str = platform.machine()) -> str:
    """Of all that is compiled, and how, the compiler aside. Raises BuildError where there are no sources to read."""
    files = sorted([*sources.glob("*.cpp"), *sources.glob("*.h")])
    if not files:
        raise BuildError(f"{sources} holds no sources of the kernel")
    told = hashlib.sha256(repr((sys.platform, machine, _FLAGS, _LINK_FLAGS, variants(machine))).encode())
    for file in files:
        content = _content(file)
        told.update(f"{file.name} {len(content)}\n".encode() + content)
    return told.hexdigest()


def read_stamp(library: Path) -> Stamp | None:
    """That of a built library, which need not be for this machine; None where there is none. Raises BuildError."""
    found = _STAMP.search(_content(library)) if library.is_file() else None
    return Stamp(*(part.decode() for part in found.groups())) if found else None


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise BuildError(f"{file} cannot be read: {error}") from error


def find_compiler() -> Compiler:
    """The first that answers. Raises NoCompiler; BuildError where $CXX is no command."""
    tried = []
    for command in _compiler_commands():
        if version := _version(command):
            return Compiler(command, version)
        tried.append(shlex.join(command))
    raise NoCompiler(f"no C++ compiler is found (tried: {', '.join(tried)}); {CURE}")


def build(output: Path = LIBRARY, sources: Path = SOURCES, machine: str = platform.machine()) -> str:
    """Builds the library, or leaves it where it is up to date. It is replaced in one piece: no process sees half of it.

    Args:
        machine: the processor architecture, which the compiler must be for.

    Returns:
        What was done, for people.

    Raises:
        BuildError: there is no compiler or it fails, and there is no library of these sources yet.
    """
    wanted, found = digest(sources, machine), read_stamp(output)
    try:
        compiler = find_compiler()
        if found == Stamp(wanted, str(compiler)):
            return f"{output} is up to date"
        return _build_anew(compiler, wanted, output, sources, machine)
    except BuildError as error:
        if found and found.digest == wanted:
            return f"{output} is up to date; built by {found.compiler}, and cannot be built here: {error}"
        raise


def _build_anew(compiler: Compiler, wanted: str, output: Path, sources: Path, machine: str) -> str:
    """As `build` does, whatever is there."""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".kernel-", dir=output.parent) as directory:
            built = _compile(compiler, sources, Path(directory), Stamp(wanted, str(compiler)), machine)
            (Path(directory) / "library").replace(output)
    except OSError as error:
        raise BuildError(f"{output} cannot be written: {error}") from error
    left_out = [name for name in variants(machine) if name not in built]
    note = f" (which cannot build {', '.join(left_out)})" if left_out else ""
    return f"{output}: built {', '.join(built)} with {compiler.version}{note}"


def _compile(compiler: Compiler, sources: Path, directory: Path, stamp: Stamp, machine: str) -> list[str]:
    """Leaves the linked file `library` in the directory, and returns the variants it holds, best first."""
    stamp_source = directory / "stamp.cpp"
    stamp_source.write_text(_stamp_source(stamp))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        known = variants(machine)
        accepted = pool.map(lambda variant: _accepts(compiler, *variant), known.items())
        built = {name: known[name] for name, is_accepted in zip(known, accepted, strict=True) if is_accepted}
        units = [*_units(sources, built), Unit("stamp", stamp_source, ())]
        objects = list(pool.map(lambda unit: _compile_unit(compiler, unit, directory), units))
    _run(compiler, *_LINK_FLAGS, *objects, "-o", str(directory / "library"))
    return list(built)


def _units(sources: Path, built: Mapping[str, tuple[str, ...]]) -> list[Unit]:
    """`variant.cpp` once for each variant, which take the longest; every other file once, knowing them all."""
    each = " ".join(f"x({name})" for name in built)
    once = sorted(set(sources.glob("*.cpp")) - {sources / "variant.cpp"})
    return [
        *(Unit(name, sources / "variant.cpp", (f"-DKAKEYA_VARIANT={name}", *flags)) for name, flags in built.items()),
        *(Unit(source.name, source, (f"-DKAKEYA_EACH_VARIANT(x)={each}",)) for source in once),
    ]


def _compile_unit(compiler: Compiler, unit: Unit, directory: Path) -> str:
    """The object file."""
    object_file = str(directory / f"{unit.name}.o")
    _run(compiler, *_FLAGS, *unit.flags, "-c", str(unit.source), "-o", object_file)
    return object_file


def _stamp_source(stamp: Stamp) -> str:
    """C++ that puts the stamp into the library, where `read_stamp` finds it."""
    text = json.dumps(f"kakeya-kernel {stamp.digest} {stamp.compiler}")
    return f'extern "C" __attribute__((visibility("default"))) const char* kakeya_stamp() {{ return {text}; }}\n'


def _accepts(compiler: Compiler, name: str, flags: tuple[str, ...]) -> bool:
    """Whether the compiler knows a variant's flags and instructions; an old one, or an old assembler, may not."""
    if not flags:
        return True
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "instructions.cpp"
        source.write_text(f"#include <immintrin.h>\n{_INSTRUCTIONS[name]}\n")
        return _call(*compiler.command, *flags, "-c", str(source), "-o", f"{source}.o").returncode == 0


def _run(compiler: Compiler, *arguments: str) -> None:
    """Raises BuildError, with what the compiler said."""
    done = _call(*compiler.command, *arguments)
    if done.returncode != 0:
        raise BuildError(f"{shlex.join(done.args)} ended with {done.returncode}:\n{done.stdout[:8000]}")


def _call(*command: str) -> subprocess.CompletedProcess[str]:
    """Raises BuildError where the program cannot be run at all."""
    try:
        return subprocess.run(  # noqa: S603  # the compiler of the user who builds
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
    except OSError as error:
        raise BuildError(f"{command[0]} cannot be run: {error}") from error


def _compiler_commands() -> Iterator[tuple[str, ...]]:
    if given := os.environ.get("CXX"):
        try:
            yield tuple(shlex.split(given))
        except ValueError as error:
            raise BuildError(f"$CXX is no command: {error}: {given}") from error
        return
    yield from (("c++",), ("g++",), ("clang++",))
    # Isolated, since pip hides the environment's packages from a build; and for any processor, not just this one.
    yield (sys.executable, "-I", "-m", "ziglang", "c++", "-mcpu=baseline")


def _version(command: tuple[str, ...]) -> str | None:
    """None where the command is missing or does not work, as macOS's stand-in for a compiler that is not installed."""
    try:
        done = _call(*command, "--version")
    except BuildError:
        return None
    return next(iter(done.stdout.splitlines()), None) if done.returncode == 0 else None


def main() -> int:
    summary, _, rest = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(description=summary, epilog=rest.split("\n\n", 1)[-1])
    parser.add_argument("--output", type=Path, default=LIBRARY, metavar="FILE", help="the library (%(default)s)")
    parser.add_argument("--sources", type=Path, default=SOURCES, metavar="DIRECTORY", help="of the C++ (%(default)s)")
    arguments = parser.parse_args()
    try:
        print(build(arguments.output, arguments.sources))
    except BuildError as error:
        print(f"the kernel is not built: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
