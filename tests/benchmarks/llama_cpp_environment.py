"""llama.cpp in virtual environments of its own, compiled from its Python source package on first use."""

import subprocess
from pathlib import Path

import numpy as np

from tests.benchmarks.logged_command import CommandFailed, say
from tests.benchmarks.python_environment import BENCH, PythonEnvironment

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "llama_cpp_requirements.txt"
BINDING = PythonEnvironment(BENCH / "llama-cpp", REQUIREMENTS)
CONVERTER = PythonEnvironment(BENCH / "gguf", HERE / "gguf_requirements.txt")


class LlamaCppFailed(Exception):
    """llama.cpp could not be built or did not run; the message says why."""


def prepare() -> None:
    """Makes the environments where they are missing or of other requirements: minutes, with progress on stderr.

    Raises:
        LlamaCppFailed: one could not be built.
    """
    prepare_converter()
    if not BINDING.is_ready:
        where = BINDING.directory.relative_to(BENCH.parent)
        say(f"building llama.cpp into {where} (several minutes, once; log: {BINDING.log.name} there)")
    try:
        BINDING.prepare()
    except CommandFailed as error:
        raise LlamaCppFailed(f"llama.cpp did not build (it needs a C and a C++ compiler): {error}") from error


def prepare_converter() -> None:
    """As `prepare`, for what `gguf` needs alone: seconds, and no compiler."""
    try:
        CONVERTER.prepare()
    except CommandFailed as error:
        raise LlamaCppFailed(f"GGUF's Python package was not installed: {error}") from error


def gguf(checkpoint: Path, matrix_type: str) -> Path:
    """The checkpoint as a GGUF file beside its weights, matrices in F32 or Q8_0. Raises LlamaCppFailed."""
    target = checkpoint / f"{matrix_type}.gguf"
    _run(CONVERTER, "llama_cpp_gguf.py", str(checkpoint), matrix_type, str(target))
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
    _run(BINDING, "llama_cpp_logits.py", str(model), str(tokens), str(target), "--kv", kv_type)
    return np.load(target)


def _run(environment: PythonEnvironment, script: str, *arguments: str) -> None:
    command: list[str | Path] = [environment.python, HERE / script, *arguments]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise LlamaCppFailed(f"{script} {' '.join(arguments)} failed:\n{result.stdout}{result.stderr}")
