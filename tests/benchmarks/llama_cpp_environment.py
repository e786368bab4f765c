"""llama.cpp in a virtual environment of its own, compiled from its Python source package on first use."""

import re
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REQUIREMENTS = HERE / "llama_cpp_requirements.txt"
ENVIRONMENT = ROOT / ".bench" / "llama-cpp"
PYTHON = ENVIRONMENT / "bin" / "python"

_INSTALLED = ENVIRONMENT / "installed-requirements.txt"  # written last: a build that broke off is begun again
_LOG = ENVIRONMENT / "build.log"
_COMPILED = re.compile(r"\[(\d+)/(\d+)\]")  # ninja's progress
_PROGRESS_SECONDS = 15.0
_NUM_LOG_LINES = 20


class LlamaCppFailed(Exception):
    """llama.cpp could not be built or did not run; the message says why."""


def prepare() -> None:
    """Makes the environment where it is missing or of other requirements: minutes, with progress on stderr.

    Raises:
        LlamaCppFailed: it could not be built.
    """
    if _INSTALLED.is_file() and _INSTALLED.read_text() == REQUIREMENTS.read_text():
        return
    _say(f"building llama.cpp into {ENVIRONMENT.relative_to(ROOT)} (several minutes, once; log: {_LOG.name} there)")
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    venv.create(ENVIRONMENT, symlinks=True, with_pip=True)
    _install()
    shutil.copy(REQUIREMENTS, _INSTALLED)


def gguf(checkpoint: Path, matrix_type: str) -> Path:
    """The checkpoint as a GGUF file beside its weights, matrices in F32 or Q8_0. Raises LlamaCppFailed."""
    target = checkpoint / f"{matrix_type}.gguf"
    _run("llama_cpp_gguf.py", str(checkpoint), matrix_type, str(target))
    return target


def logits(model: Path, sequences: np.ndarray, kv_type: str) -> np.ndarray:
    """llama.cpp's logits after every token, with K and V in f16 or f32. Raises LlamaCppFailed.

    Args:
        sequences: token ids [sequences, tokens].

    Returns:
        float32 [sequences, tokens, vocab].
    """
    tokens, target = model.with_suffix(".tokens.npy"), model.with_suffix(".logits.npy")
    np.save(tokens, sequences)
    _run("llama_cpp_logits.py", str(model), str(tokens), str(target), "--kv", kv_type)
    return np.load(target)


def _install() -> None:
    command: list[str | Path] = [
        PYTHON,
        "-m",
        "pip",
        "install",
        "-v",
        "-r",
        REQUIREMENTS,
        "-c",
        ROOT / "constraints.txt",
    ]
    started = said = time.monotonic()
    with (
        _LOG.open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip,
    ):
        assert pip.stdout
        for line in pip.stdout:
            log.write(line)
            compiled = _COMPILED.search(line)
            if compiled and time.monotonic() - said >= _PROGRESS_SECONDS:
                said = time.monotonic()
                _say(f"  compiled {compiled[1]} of {compiled[2]} after {said - started:.0f} s")
    if pip.returncode:
        end = "".join(_LOG.read_text().splitlines(keepends=True)[-_NUM_LOG_LINES:])
        raise LlamaCppFailed(f"llama.cpp did not build (it needs a C and a C++ compiler); the end of {_LOG}:\n{end}")


def _run(script: str, *arguments: str) -> None:
    command: list[str | Path] = [PYTHON, HERE / script, *arguments]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise LlamaCppFailed(f"{script} {' '.join(arguments)} failed:\n{result.stdout}{result.stderr}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
